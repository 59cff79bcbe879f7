"""Chunks that are read ahead: what is read stays the same, and so are the errors."""

import threading
import time
import warnings

import numpy as np
import pytest

from cntkjax.io import MinibatchSource, _ctf
from cntkjax.io._batcher import Batcher
from cntkjax.io._ctf import CTFFile
from cntkjax.io._sampler import Sampler
from tests.io.numbered import Numbered, batch


def test_prefetched_chunks_are_the_next_ones():
    deserializer = Numbered([1] * 6, 3)
    source = Batcher(Sampler(deserializer), 2, 2**64, True)
    assert [batch(source, 2)[0] for _ in range(7)] == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], []]
    assert deserializer.reads == [0, 1, 2, 0, 1, 2]


def test_an_error_in_a_prefetched_chunk_is_raised_with_its_minibatch():
    deserializer = Numbered([1] * 4, 2)
    read = deserializer.read_chunk

    def fails(chunk):
        if chunk == 1:
            raise RuntimeError("bad chunk")
        return read(chunk)

    deserializer._known_lengths[1] = np.ones(2, np.int32)
    deserializer.read_chunk = fails
    source = Batcher(Sampler(deserializer), 1, 2**64, True)
    assert batch(source, 2)[0] == [0, 1]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="bad chunk"):
            batch(source, 2)
    deserializer.read_chunk = read
    assert batch(source, 2)[0] == [2, 3]


@pytest.fixture
def numbered(ctf):
    """A text file of 300 sequences of 1 to 3 rows in some twenty chunks; rows are numbered."""
    text, row = "", 0
    for sequence in range(300):
        for _ in range(1 + sequence % 3):
            text += f"{sequence} |x {row} {-row} |w {row % 5}:{row + 1}\n"
            row += 1
    return ctf(text, {"chunkSizeInBytes": 600}, x=2, w=(5,))


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
