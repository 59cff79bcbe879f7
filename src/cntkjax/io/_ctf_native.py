"""Calls the compiled parser of CNTK text format, `ctf.c`, if it was built: see `cntkjax._build_native`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from .._build_native import CTF
from ..engine.data.ragged import SparseRows, offsets_of
from ._ctf_rows import Field, MalformedRow, Map, Parsed, Samples, canonical
from ._number_parsing import POWERS_OF_TEN
from ._text import TextRows

_VERSION = 1  # as in ctf.c


class _Field(ctypes.Structure):
    """The struct of the same name in `ctf.c`."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("name_size", ctypes.c_int64), ("width", ctypes.c_int64),
        ("is_sparse", ctypes.c_int64), ("rows", ctypes.c_void_p), ("counts", ctypes.c_void_p),
        ("values", ctypes.c_void_p), ("indices", ctypes.c_void_p), ("max_samples", ctypes.c_int64),
        ("max_entries", ctypes.c_int64), ("samples", ctypes.c_int64), ("entries", ctypes.c_int64),
        ("entries_before", ctypes.c_int64), ("is_canonical", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL | None:
    return _load(CTF.path)


def _load(path: Path) -> ctypes.CDLL | None:
    """The library, unless it is missing or was built from another version of the source."""
    try:
        library = ctypes.CDLL(str(path))
        version, count, parse = (getattr(library, f"cntkjax_ctf_{name}") for name in ("version", "count", "parse"))
    except (OSError, AttributeError):
        return None
    version.restype = count.restype = parse.restype = ctypes.c_int64
    number, address = ctypes.c_int64, ctypes.c_void_p
    count.argtypes = address, number, address, number
    parse.argtypes = address, number, number, address, address, number, address, number
    return library if version() == _VERSION else None


def is_available() -> bool:
    """Whether the parser was built."""
    return _library() is not None


@dataclass(frozen=True)
class _Results:
    """The samples of a field in all pieces: each piece has its place in these arrays.

    Shapes: firsts int64 [pieces + 1, 2], the first sample and the first entry of each piece; rows, counts int64
            [samples]; values float32 [samples, width], or [entries] if sparse; indices int32 [entries].
    """

    field: Field
    firsts: np.ndarray
    rows: np.ndarray
    counts: np.ndarray
    values: np.ndarray
    indices: np.ndarray

    @staticmethod
    def allocated(field: Field, sizes: np.ndarray) -> _Results:
        """Shapes: sizes int64 [pieces, 2], numbers of samples and entries."""
        firsts = np.stack([offsets_of(sizes[:, 0]), offsets_of(sizes[:, 1])], axis=1)
        samples, entries = firsts[-1]
        values = np.empty(entries if field.is_sparse else (samples, field.width), np.float32)
        rows, counts = np.empty((2, samples), np.int64)
        return _Results(field, firsts, rows, counts, values, np.empty(entries, np.int32))

    def place(self, piece: int) -> _Field:
        """Where the parser stores the samples of a piece."""
        (sample, entry), (samples, entries) = self.firsts[piece], np.diff(self.firsts, axis=0)[piece]
        values = self.values[entry:] if self.field.is_sparse else self.values[sample:]
        arrays = self.rows[sample:], self.counts[sample:], values, self.indices[entry:]
        addresses = (array.ctypes.data for array in arrays)
        return _Field(*_declared(self.field), *addresses, samples, entries, 0, 0, 0, 1)

    def samples(self, places: Sequence[_Field]) -> Samples:
        """What was stored, without the gaps that malformed rows left."""
        samples, entries = (
            [slice(first, first + used) for first, used in zip(self.firsts[:, kind], numbers, strict=False)]
            for kind, numbers in enumerate(([p.samples for p in places], [p.entries for p in places]))
        )
        rows, counts = _stored(self.rows, samples), _stored(self.counts, samples)
        if not self.field.is_sparse:
            return Samples(rows, _stored(self.values, samples), rows[counts < self.field.width])
        values, indices = _stored(self.values, entries), _stored(self.indices, entries)
        data = SparseRows(offsets_of(counts), indices, values, self.field.width)
        return Samples(rows, data if all(p.is_canonical for p in places) else canonical(data), rows[:0])


def _declared(field: Field) -> tuple[bytes, int, int, int]:
    return field.alias, len(field.alias), field.width, field.is_sparse


def _stored(array: np.ndarray, parts: Sequence[slice]) -> np.ndarray:
    """The parts end to end; no copy if there is nothing between them."""
    if sum(part.stop - part.start for part in parts) == len(array):
        return array
    return np.concatenate([array[part] for part in parts])


def parse(text: TextRows, pieces: Sequence[slice], fields: Sequence[Field], run: Map) -> Parsed:
    """Parse pieces of whole rows. The threads of ``run`` don't wait for each other: the parser needs no Python."""
    library, number = _library(), len(fields)
    assert library is not None

    def count(piece: slice) -> tuple[int, list[tuple[int, int]]]:
        part, array = text[piece], (_Field * number)(*(_Field(*_declared(field)) for field in fields))
        rows = library.cntkjax_ctf_count(part, len(part), array, number)
        return rows, [(field.max_samples, field.max_entries) for field in array]

    rows, sizes = zip(*run(count, pieces), strict=True)
    first_rows = offsets_of(np.array(rows)).tolist()
    by_field = np.array(sizes).transpose(1, 0, 2)
    results = [_Results.allocated(field, size) for field, size in zip(fields, by_field, strict=True)]

    def parse_piece(index: int) -> tuple[list[_Field], list[MalformedRow]]:
        part, array = text[pieces[index]], (_Field * number)(*(result.place(index) for result in results))
        malformed = np.empty((rows[index], 2), np.int64)
        size = library.cntkjax_ctf_parse(
            part, len(part), first_rows[index], POWERS_OF_TEN.ctypes.data, array, number, malformed.ctypes.data,
            len(malformed),
        )
        return list(array), [MalformedRow(row, pieces[index].start + at) for row, at in malformed[:size].tolist()]

    places, malformed = zip(*run(parse_piece, range(len(pieces))), strict=True)
    samples = [result.samples(stored) for result, stored in zip(results, zip(*places, strict=True), strict=True)]
    return samples, [row for rows_of_piece in malformed for row in rows_of_piece]
