"""Indices of large files are kept, and used only if they are those of the file."""

import os

import numpy as np
import pytest

from cntkjax.io import _ctf_index, _kept_index
from cntkjax.io._ctf import CTFFile


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
