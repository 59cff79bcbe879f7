"""Parses rows of CNTK text format.

A chunk is parsed as a whole with array operations. If that fails, the chunk is halved until the malformed rows are
isolated; these are parsed one by one, to report what is wrong with them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..engine.data.ragged import SparseRows, concatenate_rows, offsets_of, ranges
from ._number_parsing import parse_decimal, parse_integers, parse_numbers

_PIECE = 2**21  # bytes that are parsed at once, so that intermediate arrays stay in the cache
_NEWLINE, _BAR, _COLON = 10, 124, 58
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


class _MalformedError(Exception):
    """Some row is malformed; only parsing row by row can tell which and why."""


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
        """Warns of a malformed row, which is skipped.

        Errors: RuntimeError if the file now has more errors than are allowed.
        """
        self.num_errors += 1
        self.errors[self.chunk] = self.num_errors
        message = f"{self.location(row)}: {reason}"
        if sum(self.errors.values()) > self.max_errors:
            raise RuntimeError(
                f"{message}. Reached the maximum number of allowed errors ({self.max_errors}) while reading the input "
                "file: correct the row, or set the option 'maxErrors' of the deserializer"
            )
        warnings.warn(f"{message}; skipped", stacklevel=2)


def parse_chunk(text: np.ndarray, fields: Sequence[Field], reporter: RowReporter) -> list[Samples]:
    """All rows of a chunk, by field.

    Shapes: text uint8 [bytes], the last one a newline.
    Errors: RuntimeError for more malformed rows than the reporter allows.
    """
    newlines = np.flatnonzero(text == _NEWLINE)
    pieces, begin, row = [], 0, 0
    while begin < len(text):
        last = min(int(np.searchsorted(newlines, begin + _PIECE)), len(newlines) - 1)
        end = int(newlines[last]) + 1
        pieces.append(_parse_or_halve(text[begin:end], row, fields, reporter))
        begin, row = end, last + 1
    return [_concatenate(parts) for parts in zip(*pieces, strict=True)]


def _parse_or_halve(text: np.ndarray, first: int, fields: Sequence[Field], reporter: RowReporter) -> list[Samples]:
    try:
        return [Samples(s.rows + first, s.data, s.too_short + first) for s in parse_rows(text, fields)]
    except _MalformedError:
        newlines = np.flatnonzero(text == _NEWLINE)
        if len(newlines) == 1:
            return parse_row(text.tobytes(), first, fields, reporter)
        half = len(newlines) // 2
        parts = (text[: newlines[half - 1] + 1], first), (text[newlines[half - 1] + 1 :], first + half)
        halves = [_parse_or_halve(part, row, fields, reporter) for part, row in parts]
        return [_concatenate(pair) for pair in zip(*halves, strict=True)]


def _concatenate(parts: Sequence[Samples]) -> Samples:
    rows, too_short = (np.concatenate([getattr(p, name) for p in parts]) for name in ("rows", "too_short"))
    return Samples(rows, concatenate_rows([p.data for p in parts]), too_short)


def parse_rows(text: np.ndarray, fields: Sequence[Field]) -> list[Samples]:
    """Well-formed rows, all at once, by field.

    Shapes: text uint8 [bytes], the last one a newline.
    Errors: _MalformedError, without a reason, if any row is malformed.
    """
    newlines = np.flatnonzero(text == _NEWLINE)
    bars = np.flatnonzero(text == _BAR)
    row_begins = np.concatenate([[0], newlines[:-1] + 1])
    first_bar = np.searchsorted(bars, row_begins)
    _expect(len(bars) > 0 and first_bar[-1] < len(bars) and (bars[first_bar] < newlines).all())
    space = (text == 32) | (text == 9) | (text == 13) | (text == _NEWLINE) | (text == _BAR)
    _expect_prefixes(text, space, row_begins, bars[first_bar])

    edges = np.flatnonzero(np.diff(space, prepend=True))
    words, word_ends = edges[::2], edges[1::2]
    row_of_bar = np.repeat(np.arange(len(newlines)), np.diff(first_bar, append=len(bars)))
    begins = bars + 1
    ends = np.minimum(np.append(bars[1:], len(text)), newlines[row_of_bar])
    _expect(not space[begins].any())  # a name directly follows its bar
    colons = np.flatnonzero(text == _COLON) if any(f.is_sparse for f in fields) else bars
    has_sample = np.zeros(len(newlines), bool)
    samples = []
    for field in fields:
        which = np.arange(len(begins))
        for k, character in enumerate(field.alias):
            which = which[text[begins[which] + k] == character]
        which = which[space[begins[which] + len(field.alias)]]
        rows = row_of_bar[which]
        _expect(len(rows) < 2 or (np.diff(rows) > 0).all())
        has_sample[rows] = True
        first = np.searchsorted(words, begins[which] + len(field.alias))
        counts = np.searchsorted(words, ends[which]) - first
        values = ranges(first, counts)
        parse = _sparse if field.is_sparse else _dense
        data = parse(text, words[values], word_ends[values], counts, field.width, colons)
        samples.append(Samples(rows, data, rows[counts < field.width] if not field.is_sparse else rows[:0]))
    _expect(has_sample.all())
    return samples


def _expect(condition: bool | np.bool_) -> None:
    if not condition:
        raise _MalformedError


def _expect_prefixes(text: np.ndarray, space: np.ndarray, begins: np.ndarray, bars: np.ndarray) -> None:
    """Checks that nothing precedes the first bar of a row but an id, in the first column."""
    lengths = bars - begins
    if not lengths.any():
        return
    where = ranges(begins, lengths)
    digit = text[where] - 48 < 10
    _expect((digit | space[where]).all())
    starts = digit.copy()
    starts[1:] &= ~digit[:-1] | (np.diff(where) > 1)
    row = np.repeat(np.arange(len(begins)), lengths)[starts]
    _expect((where[starts] == begins[row]).all())


def _dense(
    text: np.ndarray, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray, width: int, colons: np.ndarray
) -> np.ndarray:
    _expect((counts <= width).all())
    values, valid = parse_numbers(text, begins, ends)
    _expect(valid.all())
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if len(values) == len(counts) * width:
        return values.reshape(-1, width)
    data = np.zeros(len(counts) * width, np.float32)
    data[ranges(np.arange(len(counts)) * width, counts)] = values
    return data.reshape(-1, width)


def _sparse(
    text: np.ndarray, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray, width: int, colons: np.ndarray
) -> SparseRows:
    at = np.searchsorted(colons, begins)
    _expect(len(at) == 0 or (at[-1] < len(colons) and (colons[at] < ends).all()))
    middles = colons[at]
    indices, whole = parse_integers(text, begins, middles)
    values, valid = parse_numbers(text, middles + 1, ends)
    _expect(whole.all() and valid.all() and (indices < width).all())
    with np.errstate(over="ignore"):
        return canonical(SparseRows(offsets_of(counts), indices.astype(np.int32), values.astype(np.float32), width))


def canonical(rows: SparseRows) -> SparseRows:
    """Sorts the indices of each row, adds up the values of equal indices, and drops zeros."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    ascending = (np.diff(rows.indices) > 0) | (np.diff(row) > 0)
    if ascending.all() and rows.values.all():
        return rows
    cell, inverse = np.unique(row * rows.width + rows.indices, return_inverse=True)
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
    return [samples.get(field.alias, _no_samples(field)) for field in fields]


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


def _no_samples(field: Field) -> Samples:
    none = np.zeros(0, np.int64)
    if field.is_sparse:
        return Samples(
            none, SparseRows(np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.float32), field.width), none
        )
    return Samples(none, np.zeros((0, field.width), np.float32), none)


def _quoted(text: bytes) -> str:
    return repr(text.strip()[:40].decode("utf-8", "replace"))
