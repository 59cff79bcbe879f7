"""Indices of large files, kept beside the cache of compiled programs, so that a file is scanned once.

An index is used only for the file that it was made of: the size, the time of the last change, the inode and samples of
the content have to be the same. One that is damaged is made again, and where nothing can be written nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .._best_effort import BestEffort
from .._cache_folder import directory

Arrays = Mapping[str, np.ndarray]

SMALLEST = 2**26  # bytes of a file whose index is kept; smaller files are scanned in less than a tenth of a second
_SHARE = 8  # an index is kept if it has at most so small a part of the bytes of the file: others are read as slowly
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of the content
_MOST = 100  # indices that are kept

_LOADING = BestEffort("load the kept index of a file", "the file is scanned")
_KEEPING = BestEffort("keep the index of a file", "the file is scanned in the next process, too")


def kept(file: BinaryIO, path: str, options: str, build: Callable[[], Arrays]) -> Arrays:
    """The index of an open file: the one that was kept, or what ``build`` returns, which then is kept.

    Args:
        path: of the file
        options: whatever else the index depends on
    """
    size = os.fstat(file.fileno()).st_size
    folder = directory("index")
    if not folder or size < SMALLEST:
        return build()
    name = hashlib.sha256(f"{os.path.realpath(path)}\n{options}".encode()).hexdigest()[:40]
    place, identity = Path(folder) / f"{name}.npz", _identity(file)
    if (loaded := _LOADING.attempt(_load, place, identity)) is not None:
        return loaded
    arrays = build()
    if _SHARE * sum(array.nbytes for array in arrays.values()) <= size:
        _KEEPING.attempt(_store, place, arrays, identity)
    return arrays


def _load(place: Path, identity: str) -> Arrays | None:
    """The index in a file; None if there is none, or it was made of other data."""
    with suppress(FileNotFoundError), open(place, "rb") as index, np.load(index, allow_pickle=False) as stored:
        if stored["identity"].item() == identity:
            return {key: stored[key] for key in stored.files if key != "identity"}
    return None


def _identity(file: BinaryIO) -> str:
    """What is different for another file, and if this one has changed."""
    state = os.fstat(file.fileno())
    digest = hashlib.sha256()
    for position in np.linspace(0, max(state.st_size - _SAMPLE_BYTES, 0), _SAMPLES).astype(int).tolist():
        file.seek(position)
        digest.update(file.read(_SAMPLE_BYTES))
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ino} {digest.hexdigest()}"


def _store(place: Path, arrays: Arrays, identity: str) -> None:
    """Write an index as a whole, and delete the oldest ones."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".new", delete=False) as file:
        try:
            np.savez(file, allow_pickle=False, identity=np.array(identity), **arrays)
            file.close()
            os.replace(file.name, place)
        except BaseException:
            os.unlink(file.name)
            raise
    by_age = sorted(place.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime)
    for old in by_age[:-_MOST]:
        old.unlink()
