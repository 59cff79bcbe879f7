"""The index of a CTF file: where its sequences begin, without parsing any value."""

from __future__ import annotations

import codecs
import os
import string
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from .._terminal import status
from ._kept_index import kept
from ._number_parsing import parse_integers

_WINDOW = 1 << 19  # bytes that are scanned at once, so that intermediate arrays stay in the cache
_NEWLINE, _BAR = 10, 124
_SILENT_SECONDS, _REFRESH_SECONDS = 1.0, 0.2  # of the line on the terminal
MAX_ID = 2**64 - 1
_ID_DIGITS = len(str(MAX_ID))
_MAX_DIGITS = 512  # digits of an id, leading zeros included


Window = tuple[np.ndarray, int, np.ndarray]
"""Bytes, the offset of the first one, and the offsets of the rows."""


class _IdError(Exception):
    """A row has an id above ``MAX_ID``."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


@dataclass(frozen=True)
class CTFIndex:
    """Sequences of a CTF file and their chunks.

    Shapes: begins int64 [sequences + 1], the byte at which each sequence begins, then the size of the file;
            rows int64 [sequences + 1], the number of its first row in the file, then the number of all rows;
            keys int64 [sequences], the sequence ids; chunks int64 [chunks + 1], the first sequence of each chunk.
    """

    begins: np.ndarray
    rows: np.ndarray
    keys: np.ndarray
    chunks: np.ndarray


def open_index(file: BinaryIO, name: str, chunk_size: int, skip_ids: bool) -> CTFIndex:
    """The index of an open file, which is scanned unless its index was kept.

    Args:
        file: opened in binary mode
        name: for error messages
        chunk_size: bytes of a chunk; chunks hold whole sequences, so a long sequence makes a larger chunk
        skip_ids: each row is a sequence, whatever its id

    Errors: RuntimeError if the file is blank, does not begin with a bar or a number, or has an id above ``MAX_ID``.
    """
    arrays = kept(file, name, f"CTF 1 {bool(skip_ids)}", lambda: _scan(file, name, skip_ids))
    begins = arrays["begins"]
    numbers = np.arange(len(begins))
    return CTFIndex(
        begins,
        arrays["rows"] if "rows" in arrays else int(arrays["skipped"]) + numbers if arrays["skipped"] else numbers,
        arrays.get("keys", numbers[:-1]),
        chunks_of(begins, chunk_size),
    )


def _scan(file: BinaryIO, name: str, skip_ids: bool) -> dict[str, np.ndarray]:
    """The arrays of an index; if each row is a sequence, only ``begins`` and the number of rows before the first one.

    Errors: see ``open_index``.
    """
    begin, skipped, first = _first_row(file, name)
    if not (first == _BAR or chr(first) in string.digits):
        raise RuntimeError(f"{name}, line {skipped + 1}: begins with {chr(first)!r} instead of a sequence id or '|'")
    has_ids = first != _BAR and not skip_ids
    begins, rows, keys, row, last = [], [], [], skipped, None
    for text, offset, row_begins in _with_progress(_windows(file, begin), name, os.fstat(file.fileno()).st_size):
        if has_ids:
            try:
                new, ids = _new_sequences(text, row_begins - offset, last)
            except _IdError as error:
                raise RuntimeError(
                    f"{name}, line {row + error.row + 1}: a sequence id above {MAX_ID}; use smaller ones, or set the "
                    "option 'skipSequenceIds' of the deserializer if each row is a sequence"
                ) from None
            last = int(ids[-1]) if len(ids) else last
            keys.append(ids)
            rows.append(row + new)
            begins.append(row_begins[new])
        else:
            begins.append(row_begins)
        row += len(row_begins)
    arrays = {"begins": np.concatenate([*begins, [file.tell()]]), "skipped": np.array(skipped)}
    if has_ids:
        arrays |= {"rows": np.concatenate([*rows, [row]]), "keys": np.concatenate(keys)}
    return arrays


def _first_row(file: BinaryIO, name: str) -> tuple[int, int, int]:
    """Offset of the first row, number of blank lines before it, and its first character."""
    file.seek(0)
    mark = file.read(3)
    if mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise RuntimeError(f"{name} is encoded in UTF-16, as by PowerShell's '>': save it in UTF-8 or ASCII")
    offset = 3 if mark == codecs.BOM_UTF8 else 0
    file.seek(offset)
    lines = 0
    while text := file.read(_WINDOW):
        rest = text.lstrip()
        blank = text[: len(text) - len(rest)]
        lines += blank.count(b"\n")
        if rest:
            return offset + len(blank), lines, rest[0]
        offset += len(text)
    raise RuntimeError(f"{name}: Input file is empty")


def _windows(file: BinaryIO, begin: int) -> Iterator[Window]:
    """Windows of whole rows: the bytes, the offset of the first one, and the offsets of the rows."""
    file.seek(begin)
    parts: list[bytes] = []  # since the last newline
    while True:
        read = file.read(_WINDOW)
        end = read.rfind(b"\n") + 1
        if not end and read:
            parts.append(read)
            continue
        text = b"".join([*parts, read[:end]])
        if text:
            characters = np.frombuffer(text, np.uint8)
            newlines = np.flatnonzero(characters[:-1] == _NEWLINE)
            yield characters, begin, begin + np.concatenate([[0], newlines + 1])
        if not read:
            return
        begin, parts = begin + len(text), [read[end:]]


def _with_progress(windows: Iterator[Window], name: str, size: int) -> Iterator[Window]:
    """The windows; a line on the terminal says how far they are, if that takes long."""
    start = shown = time.monotonic()
    for window in windows:
        yield window
        now = time.monotonic()
        if now - start > _SILENT_SECONDS and now - shown > _REFRESH_SECONDS:
            shown = now
            status.show(f"{os.path.basename(name)}: {window[1] / size:4.0%} of {size / 2**30:.1f} GB scanned")
    if shown > start:
        status.erase()


def _new_sequences(text: np.ndarray, rows: np.ndarray, last: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows with another id than the row before, and these ids modulo 2**64; a row without an id continues the sequence.

    Errors: _IdError for an id above ``MAX_ID``.
    """
    with_id = np.flatnonzero(text[rows] - ord("0") < 10)
    begins = rows[with_id]
    ends = begins.copy()
    growing = np.arange(len(begins))
    while len(growing):
        if ends[growing[0]] - begins[growing[0]] > _MAX_DIGITS:
            raise _IdError(int(with_id[growing[0]]))
        ends[growing] += 1
        growing = growing[ends[growing] < len(text)]
        growing = growing[text[ends[growing]] - ord("0") < 10]
    ids, _ = parse_integers(text, begins, ends)
    overflowing = _overflowing(text, begins, ends)
    if len(overflowing):
        raise _IdError(int(with_id[overflowing[0]]))
    changes = np.ones(len(ids), bool)
    changes[1:] = ids[1:] != ids[:-1]
    changes[:1] = ids[:1] != last if last is not None else True
    return with_id[changes], ids[changes]


def _overflowing(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Which ids are above ``MAX_ID``. Shapes: int64 [ids] each -> int64 [any]."""
    begins = begins.copy()
    while (padded := (ends - begins > _ID_DIGITS) & (text[begins] == ord("0"))).any():
        begins += padded
    long = np.flatnonzero(ends - begins >= _ID_DIGITS)
    begins, ends = begins[long], ends[long]
    heads, ids = (parse_integers(text, begins, stops)[0].view(np.uint64) for stops in (ends - 1, ends))
    return long[(ends - begins > _ID_DIGITS) | (ids // 10 != heads)]  # of 20 digits, a number modulo 2**64 is smaller


def chunks_of(begins: np.ndarray, size: int) -> np.ndarray:
    """Group sequences into chunks of this many bytes: the first sequence of each chunk, then the number of sequences.

    Shapes: begins int64 [sequences + 1] -> int64 [chunks + 1].

    >>> chunks_of(np.array([0, 3, 6, 9, 20]), 7)
    array([0, 2, 3, 4])
    """
    chunks = [0]
    while chunks[-1] < len(begins) - 1:
        end = int(np.searchsorted(begins, begins[chunks[-1]] + size, "right")) - 1
        chunks.append(max(end, chunks[-1] + 1))
    return np.array(chunks)
