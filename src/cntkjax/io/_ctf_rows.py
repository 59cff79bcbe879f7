"""Rows of CNTK text format: what one is parsed to, and one that is malformed, of which the good samples are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._user_code import warn
from ..engine.data.ragged import SparseRows, concatenate_rows, offsets_of
from ._number_parsing import parse_decimal

_PREFIX = re.compile(rb"\d*[ \t\r\n]*")
_WORD = re.compile(rb"[^ \t\r\n]+")
_NUMBER = re.compile(rb"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_ENTRY = re.compile(rb"(\d+):(" + _NUMBER.pattern + rb")")


@dataclass(frozen=True)
class Field:
    """A stream in the file: its name there, the number of elements of a sample, and whether it is sparse."""

    alias: bytes
    width: int
    is_sparse: bool


@dataclass(frozen=True)
class Samples:
    """The samples of one stream.

    Shapes: rows int64 [samples], the row of each, ascending; data [samples, width]; too_short int64 [any], rows whose
            dense sample was padded with zeros.
    """

    rows: np.ndarray
    data: np.ndarray | SparseRows
    too_short: np.ndarray


@dataclass(frozen=True)
class MalformedRow:
    """A row that ``parse_row`` has to report: its number in the chunk, and the offset of its first character."""

    number: int
    begin: int


Parsed = tuple[list[Samples], list[MalformedRow]]
"""The samples of all well-formed rows, by field, and the other rows."""


Map = Callable[..., Iterable[Any]]
"""Calls a function for each item of its iterables, like ``map``, perhaps in several threads."""


class MalformedRowError(RuntimeError):
    """More malformed rows than are allowed: the problem, with the row, and what users of a deserializer can do."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}: {fix}")
        self.problem = problem


@dataclass
class RowReporter:
    """Reports malformed rows of a chunk with file and line.

    ``errors`` counts the errors of all chunks; those of this one restart from 0, as a chunk may be read again.
    """

    path: str
    first_row: int
    max_errors: int
    errors: MutableMapping[int, int]
    chunk: int
    num_errors: int = 0

    def location(self, row: int) -> str:
        """File and line of a row of the chunk."""
        return f"{self.path}:{self.first_row + row + 1}"

    def report(self, row: int, reason: str) -> None:
        """Warn of a malformed row, which is skipped.

        Errors: MalformedRowError if the file now has more errors than are allowed.
        """
        self.num_errors += 1
        self.errors[self.chunk] = self.num_errors
        message = f"{self.location(row)}: {reason}"
        if sum(self.errors.values()) > self.max_errors:
            raise MalformedRowError(
                f"{message}. Reached the maximum number of allowed errors ({self.max_errors}) while reading the input "
                "file", "correct the row, or set the option 'maxErrors' of the deserializer",
            )
        warn(f"{message}; skipped")


def concatenate(parts: Sequence[Samples]) -> Samples:
    """The samples of one part after the other."""
    rows, too_short = (np.concatenate([getattr(p, name) for p in parts]) for name in ("rows", "too_short"))
    return Samples(rows, concatenate_rows([p.data for p in parts]), too_short)


def canonical(rows: SparseRows) -> SparseRows:
    """Sort the indices of each row, add up the values of equal indices, and drop zeros."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    ascending = (np.diff(rows.indices) > 0) | (np.diff(row) > 0)
    if ascending.all() and rows.values.all():
        return rows
    cell, inverse = np.unique(row * rows.width + rows.indices, return_inverse=True)
    with np.errstate(over="ignore"):  # infinite, as any number is that float32 can't hold
        values = np.bincount(inverse, rows.values, len(cell)).astype(rows.values.dtype)
    cell, values = cell[values != 0], values[values != 0]
    indptr = offsets_of(np.bincount(cell // rows.width, minlength=len(rows)))
    return SparseRows(indptr, (cell % rows.width).astype(np.int32), values, rows.width)


def parse_row(row: bytes, number: int, fields: Sequence[Field], reporter: RowReporter) -> list[Samples]:
    """One row, by field: what is malformed is reported and skipped, the rest is kept.

    Errors: RuntimeError for more malformed rows than the reporter allows.
    """
    prefix, *parts = row.split(b"|")
    if not _PREFIX.fullmatch(prefix):
        reporter.report(
            number, f"{_quoted(prefix)} precedes the first '|'; only a sequence id may, and in the first column"
        )
        parts = []
    samples: dict[bytes, Samples] = {}
    fields_by_name = {field.alias: field for field in fields}
    for part in parts:
        word = _WORD.match(part)
        name = word[0] if word else b""
        if not name:
            reporter.report(number, "a '|' without a name of a stream after it")
        elif name in samples:
            reporter.report(number, f"stream '|{name.decode()}' occurs twice in this row")
        elif name in fields_by_name:
            try:
                samples[name] = _parse_sample(_WORD.findall(part, len(name)), fields_by_name[name], number)
            except ValueError as error:
                reporter.report(number, f"stream '|{name.decode()}': {error}")
    if not samples:
        is_blank = not _WORD.search(row)
        names = ", ".join(f"'|{field.alias.decode()}'" for field in fields)
        reporter.report(number, f"{'a blank line' if is_blank else 'a row'} without samples of {names}")
    return [samples.get(field.alias, no_samples(field)) for field in fields]


def _parse_sample(values: list[bytes], field: Field, row: int) -> Samples:
    """One sample.

    Errors: ValueError that says what is malformed.
    """
    none = np.zeros(0, np.int64)
    if field.is_sparse:
        entries = [_ENTRY.fullmatch(value) for value in values]
        for value, entry in zip(values, entries, strict=True):
            if entry is None:
                raise ValueError(f"{_quoted(value)} is not of the form index:value")
            if parse_decimal(entry[1].decode(), field.width - 1) is None:
                raise ValueError(f"index {entry[1][:40].decode()} is not below the dimension {field.width}")
        indices = np.array([int(e[1]) for e in entries if e], np.int32)
        data = SparseRows(np.array([0, len(values)]), indices, _float32([e[2] for e in entries if e]), field.width)
        return Samples(np.array([row]), canonical(data), none)
    for value in values:
        if not _NUMBER.fullmatch(value):
            raise ValueError(f"{_quoted(value)} is not a number")
    if len(values) > field.width:
        raise ValueError(f"{len(values)} values, more than the dimension {field.width}")
    sample = np.zeros((1, field.width), np.float32)
    sample[0, : len(values)] = _float32(values)
    return Samples(np.array([row]), sample, np.array([row]) if len(values) < field.width else none)


def _float32(numbers: Sequence[bytes]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array([float(n) for n in numbers]).astype(np.float32)


def no_samples(field: Field) -> Samples:
    """No samples of a stream."""
    none = np.zeros(0, np.int64)
    if field.is_sparse:
        return Samples(
            none, SparseRows(np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.float32), field.width), none
        )
    return Samples(none, np.zeros((0, field.width), np.float32), none)


def _quoted(text: bytes) -> str:
    return repr(text.strip()[:40].decode("utf-8", "replace"))
