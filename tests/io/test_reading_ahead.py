"""Large text files: indices are kept, and chunks are read ahead; what is read stays the same."""

import os
import threading
import time
import warnings

import numpy as np
import pytest

from cntkjax.io import MinibatchSource, _ctf, _ctf_index, _kept_index
from cntkjax.io._ctf import CTFFile


@pytest.fixture
def numbered(ctf):
    """A text file of 300 sequences of 1 to 3 rows in some twenty chunks; rows are numbered."""
    text, row = "", 0
    for sequence in range(300):
        for _ in range(1 + sequence % 3):
            text += f"{sequence} |x {row} {-row} |w {row % 5}:{row + 1}\n"
            row += 1
    return ctf(text, {"chunkSizeInBytes": 600}, x=2, w=(5,))


@pytest.fixture
def kept_indices(tmp_path, monkeypatch):
    """The folder of kept indices; those of small files are kept too."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_kept_index, "SMALLEST", 0)
    monkeypatch.setattr(_kept_index, "_SHARE", 0)
    return tmp_path / "cache" / "index"


def same_index(a, b) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("begins", "rows", "keys", "chunks"))


@pytest.mark.parametrize("ids", [True, False])
def test_a_kept_index_is_used_instead_of_scanning_the_file(ctf, kept_indices, monkeypatch, ids):
    description = ctf("\n" + "".join(f"{i // 2 if ids else ''} |x {i}\n" for i in range(50)), x=1)
    scanned = CTFFile(description).index
    assert len(list(kept_indices.iterdir())) == 1
    monkeypatch.setattr(_ctf_index, "_scan", None)
    assert same_index(CTFFile(description).index, scanned)
    assert CTFFile(description | {"chunkSizeInBytes": 40}).num_chunks > 1


def test_a_file_that_has_changed_is_scanned_again(ctf, kept_indices):
    description = ctf("|x 1\n|x 2\n|x 3\n", x=1)
    path, before = description["file"], CTFFile(description).index
    state = os.stat(path)
    with open(path, "r+") as file:
        file.write("|x 1 |y ")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = CTFFile(description).index
    assert len(after.keys) == 2 < len(before.keys)
    assert len(list(kept_indices.iterdir())) == 1


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda b: b"", lambda b: b.replace(b"NUMPY", b"NUMPX"),
                                    lambda b: b[:200] + bytes(50) + b[250:]])
def test_a_damaged_index_is_made_again(ctf, kept_indices, damage):
    description = ctf("".join(f"{i // 2} |x {i}\n" for i in range(50)), x=1)
    expected = CTFFile(description).index
    (place,) = kept_indices.iterdir()
    good = place.read_bytes()
    place.write_bytes(damage(good))
    assert same_index(CTFFile(description).index, expected)
    assert place.read_bytes() == good


def test_nothing_is_kept_without_a_cache_or_where_nothing_can_be_written(ctf, kept_indices, monkeypatch):
    description = ctf("|x 1\n|x 2\n", x=1)
    kept_indices.parent.write_text("a file where the folder would be")
    assert len(CTFFile(description).index.keys) == 2
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    assert len(CTFFile(description).index.keys) == 2


def test_old_indices_are_deleted(ctf, kept_indices, monkeypatch):
    monkeypatch.setattr(_kept_index, "_MOST", 3)
    for i in range(5):
        CTFFile(ctf(f"|x {i}\n", x=1))
    assert len(list(kept_indices.iterdir())) == 3


def test_scanning_a_large_file_shows_its_progress_on_a_terminal(ctf, monkeypatch, capsys):
    monkeypatch.setattr(_ctf_index, "_SILENT_SECONDS", -1)
    monkeypatch.setattr(_ctf_index, "_REFRESH_SECONDS", -1)
    description = ctf("".join(f"|x {i}\n" for i in range(100)), x=1)
    CTFFile(description)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("cntkjax._terminal.is_interactive", lambda: True)
    monkeypatch.setattr(_ctf_index, "_WINDOW", 100)
    CTFFile(description)
    shown = capsys.readouterr().err
    assert "data0.ctf:  50% of 0.0 GB scanned" in shown or "49%" in shown
    assert shown.endswith(" \r")


def test_the_first_minibatch_needs_no_whole_chunk(numbered, monkeypatch, read_all):
    expected = read_all(MinibatchSource(numbered, max_sweeps=1, multithreaded_deserializer=False), 7)
    monkeypatch.setattr(_ctf, "_FEW", 1)
    monkeypatch.setattr("cntkjax.io._sampler._BLOCK_BYTES", 2000)
    monkeypatch.setattr(CTFFile, "_next_chunk", waiting := _Waiting(CTFFile._next_chunk))
    with monkeypatch.context() as context:
        context.setattr(CTFFile, "read_chunk", None)
        source = MinibatchSource(numbered, max_sweeps=1)
        first = source.next_minibatch(7)
    waiting.over.set()
    minibatches = read_all(source, 7)
    assert first[source.streams.x].num_samples == sum(map(len, expected[0]["x"]))
    assert minibatches == expected[1:]


class _Waiting:
    """Lets the thread that reads ahead begin, but read nothing until ``over`` is set."""

    def __init__(self, function):
        self.function, self.over = function, threading.Event()

    def __get__(self, instance, owner):
        def wait():
            if threading.current_thread().name == "cntkjax-ahead":
                self.over.wait(20)
            return self.function(instance)

        return wait


@pytest.mark.parametrize("window", [3, 128])
@pytest.mark.parametrize("sweeps", [1, 3])
def test_reading_ahead_changes_nothing(numbered, read_all, monkeypatch, window, sweeps):
    options = {"max_sweeps": sweeps, "randomization_window_in_chunks": window}
    expected = read_all(MinibatchSource(numbered, multithreaded_deserializer=False, **options), 11)
    monkeypatch.setattr(_ctf, "_FEW", 2)
    monkeypatch.setattr("cntkjax.io._sampler._BLOCK_BYTES", 1000)
    assert read_all(MinibatchSource(numbered, **options), 11) == expected


def test_errors_of_chunks_that_are_read_ahead_come_with_their_minibatch(numbered, read_all, monkeypatch):
    path = numbered["file"]
    with open(path) as file:
        lines = file.readlines()
    lines[200] = lines[200].replace("|x", "|x oops")
    with open(path, "w") as file:
        file.writelines(lines)
    monkeypatch.setattr(_ctf, "_FEW", 2)
    allowed = numbered | {"maxErrors": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = read_all(MinibatchSource(allowed, max_sweeps=2, multithreaded_deserializer=False), 20)
        assert read_all(MinibatchSource(allowed, max_sweeps=2), 20) == expected
    with pytest.raises(RuntimeError, match=r"data0.ctf:201: stream '[|]x': 'oops' is not a number"):
        read_all(MinibatchSource(numbered, max_sweeps=2), 20)


def test_the_thread_ends_with_the_source(numbered):
    source = MinibatchSource(numbered)
    source.next_minibatch(10)
    del source
    deadline = time.monotonic() + 20
    while any(thread.name == "cntkjax-ahead" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_file_is_read_by_sequence_in_the_order_of_the_first(ctf, monkeypatch, read_all):
    monkeypatch.setattr(_ctf, "_FEW", 1)
    monkeypatch.setattr("cntkjax.io._sampler._BLOCK_BYTES", 100)
    order = np.random.default_rng(0).permutation(200)
    first = ctf("".join(f"{i} |x {i}\n" for i in range(200)), x=1)
    second = ctf("".join(f"{i} |z {i} |z2 1\n" for i in order), {"chunkSizeInBytes": 100}, z=1)
    whole = []
    read_chunk = CTFFile.read_chunk
    monkeypatch.setattr(CTFFile, "read_chunk", lambda file, chunk: whole.append(file) or read_chunk(file, chunk))
    for minibatch in read_all(MinibatchSource([first, second], max_sweeps=1), 10):
        assert minibatch["x"] == minibatch["z"]
    assert {file.path for file in whole} == {first["file"]}
