"""CNTK text format (CTF): rows of ``[id] |stream values |stream index:value ... |# comment``.

A chunk is parsed as a whole with array operations. Where that finds anything unexpected, the chunk is halved until the
rows at fault are alone; these are read one by one, and say what is wrong with them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows, concatenate_rows, offsets_of, ranges
from ..graph.origin import call_stack
from ._ctf_index import build_index
from ._numbers import parse_integers, parse_numbers
from ._streams import Deserializer, stream_information, width

CHUNK_SIZE = 32 * 2**20
_PIECE = 2**21
_NEWLINE, _BAR, _HASH, _COLON = 10, 124, 35, 58
_PREFIX = re.compile(rb"\d*[ \t\r\n]*")
_WORD = re.compile(rb"[^ \t\r\n]+")
_NUMBER = re.compile(rb"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_ENTRY = re.compile(rb"(\d+):(" + _NUMBER.pattern + rb")")


@dataclass(frozen=True)
class Field:
    """A stream as it stands in the file: its name there, elements of a sample, and whether it is sparse."""

    alias: bytes
    width: int
    is_sparse: bool


@dataclass(frozen=True)
class Samples:
    """The samples of one stream: int64 [samples] rows they are from, ascending, and the data, a sample for each."""

    rows: np.ndarray
    data: np.ndarray | SparseRows
    too_short: np.ndarray  # rows whose dense sample was filled up with zeros


class _Unexpected(Exception):
    """Something that only reading row by row can explain."""


class CTFFile(Deserializer):
    """A CTF file, by the configuration that ``CTFDeserializer`` makes.

    Errors: ValueError if no file is given; RuntimeError for one that cannot be read, is empty, or has more bad rows
            than the configuration allows (key ``maxErrors``; up to that number they are left out with a warning). It
            says file, line and stream.
    """

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self.path = configuration["file"]
        if not self.path:
            raise ValueError(f"CTFDeserializer: no file is given{call_stack()}")
        if not configuration["input"]:
            raise RuntimeError(f"CTF file '{self.path}': no stream is asked for; the deserializer needs at least one")
        named = sorted(configuration["input"].items(), key=lambda item: item[0].lower())  # so CNTK numbers them
        self.streams = [stream_information(n, i, s) for i, (n, s) in enumerate(named)]
        aliases = [s["alias"] for _, s in named]
        for alias in {a for a in aliases if aliases.count(a) > 1}:
            raise RuntimeError(f"CTF file '{self.path}': two streams are read from '|{alias}'; one has to be left out")
        self.fields = [Field(a.encode(), width(s), s.is_sparse) for a, s in zip(aliases, self.streams, strict=True)]
        self.max_errors = _number(configuration.get("maxErrors", 0))
        chunk_size = _number(configuration.get("chunkSizeInBytes", CHUNK_SIZE))
        try:
            with open(self.path, "rb") as file:
                self.index = build_index(file, self.path, chunk_size, configuration.get("skipSequenceIds", False))
        except OSError as error:
            raise RuntimeError(f"Input file '{self.path}' is not open: {error.strerror}") from error
        self.num_chunks = len(self.index.chunks) - 1
        self._problems: dict[int, int] = {}  # by chunk, as a chunk may be read again

    def lengths(self, chunk: int) -> np.ndarray:
        if any(s.m_defines_mb_size for s in self.streams):
            return super().lengths(chunk)
        first, last = self.index.chunks[chunk : chunk + 2]
        return np.diff(self.index.rows[first : last + 1])

    def sizes(self) -> np.ndarray:
        return np.diff(self.index.chunks)

    def keys(self) -> np.ndarray:
        return self.index.keys

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        first, last = self.index.chunks[chunk : chunk + 2]
        begin, end = self.index.begins[[first, last]]
        with open(self.path, "rb") as file:
            file.seek(begin)
            read = file.read(end - begin)
        rows = self.index.rows[first : last + 1]
        place = Place(self, chunk, rows[0])
        text = np.frombuffer(read if read.endswith(b"\n") else read + b"\n", np.uint8)
        parsed = _parse_in_pieces(text, self.fields, place)
        data = {}
        for info, field, samples in zip(self.streams, self.fields, parsed, strict=True):
            lengths = np.diff(np.searchsorted(samples.rows, rows - rows[0])).astype(np.int32)
            if not lengths.all():
                empty = int(np.argmin(lengths))
                raise RuntimeError(
                    f"{place.line(rows[empty] - rows[0])}: the sequence beginning here "
                    f"(id {self.index.keys[first + empty]}) has no sample of stream '|{field.alias.decode()}'. "
                    "Malformed input file."
                )
            if len(samples.too_short):
                more = f", and {len(samples.too_short) - 1} more" if len(samples.too_short) > 1 else ""
                warnings.warn(
                    f"{place.line(samples.too_short[0])}{more}: stream '|{field.alias.decode()}' has fewer than "
                    f"{field.width} values; the rest are zeros",
                    stacklevel=2,
                )
            rows_data = samples.data
            if isinstance(rows_data, np.ndarray):
                rows_data = rows_data.reshape(-1, *info.sample_shape)
            data[info.name] = Ragged(rows_data, lengths)
        self._keep_lengths(chunk, data)
        return data


@dataclass
class Place:
    """Where in which file a chunk is, for messages; it also counts what is wrong with it."""

    file: CTFFile
    chunk: int
    first_row: int
    problems: int = 0

    def line(self, row: int) -> str:
        return f"{self.file.path}:{self.first_row + row + 1}"

    def report(self, row: int, what: str) -> None:
        """Errors: RuntimeError if there are now more problems in the file than are allowed."""
        self.problems += 1
        counts = self.file._problems
        counts[self.chunk] = self.problems
        message = f"{self.line(row)}: {what}"
        if sum(counts.values()) > self.file.max_errors:
            raise RuntimeError(
                f"{message}. Reached the maximum number of allowed errors ({self.file.max_errors}; option 'maxErrors' "
                "of the deserializer) while reading the input file"
            )
        warnings.warn(f"{message}; left out", stacklevel=2)


def _number(value: Any) -> int:
    """An option that may be wrapped as `SizeTWrapper`."""
    return int(getattr(value, "value", value))


def _parse_in_pieces(text: np.ndarray, fields: Sequence[Field], place: Place) -> list[Samples]:
    """All rows; not at once, so that what is computed on the way stays in the cache."""
    newlines = np.flatnonzero(text == _NEWLINE)
    pieces, begin, row = [], 0, 0
    while begin < len(text):
        last = min(int(np.searchsorted(newlines, begin + _PIECE)), len(newlines) - 1)
        end = int(newlines[last]) + 1
        pieces.append(_parse_or_halve(text[begin:end], row, fields, place))
        begin, row = end, last + 1
    return [_join(parts) for parts in zip(*pieces, strict=True)]


def _parse_or_halve(text: np.ndarray, first: int, fields: Sequence[Field], place: Place) -> list[Samples]:
    try:
        return [Samples(s.rows + first, s.data, s.too_short + first) for s in parse_rows(text, fields)]
    except _Unexpected:
        newlines = np.flatnonzero(text == _NEWLINE)
        if len(newlines) == 1:
            return read_row(text.tobytes(), first, fields, place)
        half = len(newlines) // 2
        parts = (text[: newlines[half - 1] + 1], first), (text[newlines[half - 1] + 1 :], first + half)
        halves = [_parse_or_halve(part, row, fields, place) for part, row in parts]
        return [_join(pair) for pair in zip(*halves, strict=True)]


def _join(parts: Sequence[Samples]) -> Samples:
    rows, too_short = (np.concatenate([getattr(p, name) for p in parts]) for name in ("rows", "too_short"))
    return Samples(rows, concatenate_rows([p.data for p in parts]), too_short)


def parse_rows(text: np.ndarray, fields: Sequence[Field]) -> list[Samples]:
    """Whole rows, all at once.

    Shapes: text uint8 [bytes], the last one a newline.
    Errors: _Unexpected, without a reason.
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
    _expect(not space[begins].any())  # names follow their bars at once
    colons = np.flatnonzero(text == _COLON) if any(f.is_sparse for f in fields) else bars
    found = np.zeros(len(newlines), bool)
    samples = []
    for field in fields:
        which = np.arange(len(begins))
        for k, character in enumerate(field.alias):
            which = which[text[begins[which] + k] == character]
        which = which[space[begins[which] + len(field.alias)]]
        rows = row_of_bar[which]
        _expect(len(rows) < 2 or (np.diff(rows) > 0).all())
        found[rows] = True
        first = np.searchsorted(words, begins[which] + len(field.alias))
        counts = np.searchsorted(words, ends[which]) - first
        values = ranges(first, counts)
        parse = _sparse if field.is_sparse else _dense
        data = parse(text, words[values], word_ends[values], counts, field.width, colons)
        samples.append(Samples(rows, data, rows[counts < field.width] if not field.is_sparse else rows[:0]))
    _expect(found.all())
    return samples


def _expect(what: bool | np.bool_) -> None:
    if not what:
        raise _Unexpected


def _expect_prefixes(text: np.ndarray, space: np.ndarray, begins: np.ndarray, bars: np.ndarray) -> None:
    """Before the first bar of a row is nothing but an id, where the row begins."""
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
    """Indices ascending in each row, each once (values are added up), no zeros stored."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    ascending = (np.diff(rows.indices) > 0) | (np.diff(row) > 0)
    if ascending.all() and rows.values.all():
        return rows
    cell, inverse = np.unique(row * rows.width + rows.indices, return_inverse=True)
    values = np.bincount(inverse, rows.values, len(cell)).astype(rows.values.dtype)
    cell, values = cell[values != 0], values[values != 0]
    indptr = offsets_of(np.bincount(cell // rows.width, minlength=len(rows)))
    return SparseRows(indptr, (cell % rows.width).astype(np.int32), values, rows.width)


def read_row(row: bytes, number: int, fields: Sequence[Field], place: Place) -> list[Samples]:
    """One row, slowly: what is wrong with it is reported, what is good is kept."""
    prefix, *parts = row.split(b"|")
    if not _PREFIX.fullmatch(prefix):
        only = "only a sequence id may be, in the first column"
        place.report(number, f"{_quoted(prefix)} stands before the first '|', where {only}")
        parts = []
    found: dict[bytes, Samples] = {}
    known = {field.alias: field for field in fields}
    for part in parts:
        word = _WORD.match(part)
        name = word[0] if word else b""
        if not name:
            place.report(number, "a '|' without a name of a stream behind it")
        elif name in found:
            place.report(number, f"stream '|{name.decode()}' comes twice in this row")
        elif name in known:
            try:
                found[name] = _read_sample(_WORD.findall(part, len(name)), known[name], number)
            except ValueError as error:
                place.report(number, f"stream '|{name.decode()}': {error}")
    if not found:
        blank = not _WORD.search(row)
        asked = ", ".join(f"'|{field.alias.decode()}'" for field in fields)
        place.report(number, f"{'a blank line' if blank else 'a row'} without samples of {asked}")
    return [found.get(field.alias, _no_samples(field)) for field in fields]


def _read_sample(values: list[bytes], field: Field, row: int) -> Samples:
    """Errors: ValueError that says what is wrong."""
    none = np.zeros(0, np.int64)
    if field.is_sparse:
        entries = [_ENTRY.fullmatch(value) for value in values]
        for value, entry in zip(values, entries, strict=True):
            if entry is None:
                raise ValueError(f"{_quoted(value)} is not of the form index:value")
            if int(entry[1]) >= field.width:
                raise ValueError(f"index {int(entry[1])} is beyond the dimension {field.width}")
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
