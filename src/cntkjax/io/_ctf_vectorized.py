"""Parses CNTK text format with NumPy, where the compiled parser is missing: see `_ctf_native.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..engine.data.ragged import SparseRows, offsets_of, ranges
from ._ctf_rows import Field, MalformedRow, Map, Parsed, Samples, canonical, concatenate, no_samples
from ._number_parsing import parse_integers, parse_numbers
from ._text import TextRows

_NEWLINE, _BAR, _COLON = 10, 124, 58


class MalformedError(Exception):
    """Some row is malformed; only parsing row by row can tell which and why."""


def parse(text: TextRows, pieces: Sequence[slice], fields: Sequence[Field], run: Map) -> Parsed:
    """Parse pieces of whole rows, each as a whole; one that fails is halved until its malformed rows are isolated."""
    first = accumulate(run(lambda piece: text[piece].count(b"\n"), pieces), initial=0)

    def parse_piece(piece: slice, row: int) -> Parsed:
        return _parse_or_halve(np.frombuffer(text[piece], np.uint8), piece.start, row, fields)

    parts = list(run(parse_piece, pieces, first))
    return [concatenate(samples) for samples in zip(*(part[0] for part in parts), strict=True)], [
        row for part in parts for row in part[1]
    ]


def _parse_or_halve(text: np.ndarray, begin: int, first: int, fields: Sequence[Field]) -> Parsed:
    """Rows from the one with the number ``first`` on, which begins at the offset ``begin``."""
    try:
        samples = parse_rows(text, fields)
        return [Samples(s.rows + first, s.data, s.too_short + first) for s in samples], []
    except MalformedError:
        newlines = np.flatnonzero(text == _NEWLINE)
        if len(newlines) == 1:
            return [no_samples(field) for field in fields], [MalformedRow(first, begin)]
        half = len(newlines) // 2
        middle = int(newlines[half - 1]) + 1
        parts = (text[:middle], begin, first), (text[middle:], begin + middle, first + half)
        (a, malformed), (b, more) = (_parse_or_halve(*part, fields) for part in parts)
        return [concatenate(pair) for pair in zip(a, b, strict=True)], malformed + more


def parse_rows(text: np.ndarray, fields: Sequence[Field]) -> list[Samples]:
    """Well-formed rows, all at once, by field.

    Shapes: text uint8 [bytes], the last one a newline.
    Errors: MalformedError, without a reason, if any row is malformed.
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
        raise MalformedError


def _expect_prefixes(text: np.ndarray, space: np.ndarray, begins: np.ndarray, bars: np.ndarray) -> None:
    """Check that nothing precedes the first bar of a row but an id, in the first column."""
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
