"""Parses chunks of CNTK text format: pieces of whole rows in parallel, then the malformed rows one by one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .._threads import cores
from . import _ctf_native, _ctf_vectorized
from ._ctf_rows import Field, MalformedRow, Parsed, RowReporter, Samples, concatenate, parse_row
from ._text import TextRows

_PIECE = 2**21  # bytes that are parsed at once, so that intermediate arrays stay in the cache


def parse_chunk(
    text: TextRows, fields: Sequence[Field], reporter: RowReporter, multithreaded: bool = True
) -> list[Samples]:
    """All rows of a chunk, by field. The text ends with a newline.

    Errors: RuntimeError for more malformed rows than the reporter allows.
    """
    samples, malformed = _parse(text, fields, multithreaded)
    return _with_good_samples(samples, malformed, text, fields, reporter) if malformed else samples


def parse_well_formed(text: TextRows, fields: Sequence[Field], multithreaded: bool = True) -> list[Samples] | None:
    """All rows by field, or None if one is malformed. The text ends with a newline."""
    samples, malformed = _parse(text, fields, multithreaded)
    return None if malformed else samples


def _parse(text: TextRows, fields: Sequence[Field], multithreaded: bool) -> Parsed:
    parse = _ctf_native.parse if _ctf_native.is_available() else _ctf_vectorized.parse
    pieces = _pieces(text)
    if len(pieces) == 1 or not multithreaded:
        return parse(text, pieces, fields, map)
    with ThreadPoolExecutor(cores(), "cntkjax-parser") as threads:
        return parse(text, pieces, fields, threads.map)


def _pieces(text: TextRows) -> list[slice]:
    """Cut a text between rows."""
    pieces, begin = [], 0
    while begin < len(text):
        end = (text.find(b"\n", begin + _PIECE - 1) + 1) or len(text)
        pieces.append(slice(begin, end))
        begin = end
    return pieces


def _with_good_samples(
    samples: Sequence[Samples],
    malformed: Sequence[MalformedRow],
    text: TextRows,
    fields: Sequence[Field],
    reporter: RowReporter,
) -> list[Samples]:
    """Add what is well-formed in malformed rows, which are reported."""
    rows = [parse_row(_row(text, row.begin), row.number, fields, reporter) for row in malformed]
    return [_sorted(concatenate(parts)) for parts in zip(samples, *rows, strict=True)]


def _row(text: TextRows, begin: int) -> bytes:
    return text[begin : text.find(b"\n", begin) + 1 or len(text)].removesuffix(b"\n")


def _sorted(samples: Samples) -> Samples:
    """In the order of the rows."""
    order = np.argsort(samples.rows)
    return Samples(samples.rows[order], samples.data[order], np.sort(samples.too_short))
