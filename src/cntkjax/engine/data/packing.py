"""Packing the sequences of minibatches into grids, on the host: where each begins, and the sample in each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from .layout import Layout


def bucket(n: int) -> int:
    """The size rounded up to a multiple of a quarter of a power of two.

    >>> [bucket(n) for n in (1, 5, 9, 33, 100, 1000)]
    [1, 5, 10, 40, 112, 1024]
    """
    step = max(1, (1 << max(n - 1, 1).bit_length() - 1) // 4)
    return -(-n // step) * step


def with_padding(index: np.ndarray, is_sample: np.ndarray) -> np.ndarray:
    """The sample in each cell, where padding repeats the first one: its values are as good as any.

    Shapes: int64 index and bool is_sample [*cells] -> [*cells].
    """
    return np.where(is_sample, index, 0)


class GridShape(NamedTuple):
    """The shape of a grid. `simple`: each sequence has a row of its own."""

    time: int
    rows: int
    simple: bool


@dataclass(frozen=True)
class Grid:
    """The values of a layout on the host, and the sample in each cell.

    Shapes: index is int64 [time, rows]; padding repeats the first sample. row, start, length, origin are int32 [size].
    """

    row: np.ndarray
    start: np.ndarray
    length: np.ndarray
    index: np.ndarray
    simple: bool
    full: bool
    origin: np.ndarray | None = None

    @property
    def shape(self) -> GridShape:
        """Its shape."""
        time, rows = self.index.shape
        return GridShape(time, rows, self.simple)

    @property
    def layout(self) -> Layout:
        """The layout, as the compiled program takes it: jax makes device arrays of the vectors."""
        time, rows = self.index.shape
        row, start, length, origin = cast(Any, (self.row, self.start, self.length, self.origin))
        return Layout(row, start, length, time, rows, self.simple, self.full, origin)


def pack(lengths: np.ndarray, size: int, shape: GridShape) -> Grid | None:
    """A grid with sequences of these lengths; None if they do not fit. `size` is that of the batch axis.

    Shapes: lengths int32 [count].
    """
    time, rows, simple = shape
    if lengths.max(initial=0) > time or lengths.sum() > time * rows:
        return None
    if simple:
        return _one_per_row(lengths, size, time)
    positions = first_fit(lengths, time, rows)
    return None if positions is None else _placed(lengths, size, time, rows, *positions)


def pack_with_more_rows(lengths: np.ndarray, size: int, shape: GridShape) -> Grid:
    """As `pack`, in a grid with as many more rows as the sequences need."""
    grid = pack(lengths, size, shape)
    while grid is None:
        shape = shape._replace(rows=shape.rows + 1)
        grid = pack(lengths, size, shape)
    return grid


def _one_per_row(lengths: np.ndarray, size: int, time: int) -> Grid:
    """A grid with sequence i alone in row i."""
    count = len(lengths)
    length = np.zeros(size, np.int32)
    length[:count] = lengths
    steps, offsets = np.arange(time)[:, None], np.cumsum(length, dtype=np.int64) - length
    full = count == size and bool((length == time).all())
    row = np.arange(size, dtype=np.int32)
    return Grid(row, np.zeros(size, np.int32), length, with_padding(offsets + steps, steps < length), True, full)


def _placed(lengths: np.ndarray, size: int, time: int, rows: int, row: np.ndarray, start: np.ndarray) -> Grid:
    """A grid with the sequences at these rows and starts."""
    count = len(lengths)
    index = np.zeros((time, rows), np.int64)  # padding repeats the first sample
    total = int(lengths.sum())
    offsets = np.cumsum(lengths) - lengths
    step = np.arange(total) - np.repeat(offsets, lengths)
    index[np.repeat(start, lengths) + step, np.repeat(row, lengths)] = np.arange(total)
    padded = np.zeros((3, size), np.int32)
    padded[:, :count] = row, start, lengths
    return Grid(padded[0], padded[1], padded[2], index, False, total == time * rows and count == size)


def first_fit(lengths: Sequence[int] | np.ndarray, time: int, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and starts of the sequences by first-fit decreasing; None if they do not fit.

    >>> first_fit(np.array([3, 2, 4]), time=5, rows=2)
    (array([1, 1, 0]), array([0, 3, 0]))
    """
    lengths = np.asarray(lengths)
    row, start = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    if rows == 1:
        if lengths.sum() > time:
            return None
        return row, np.cumsum(lengths) - lengths
    filled = [0] * rows
    first = 0
    for i in np.argsort(-lengths, kind="stable").tolist():
        n = int(lengths[i])
        for r in range(first, rows):
            if filled[r] + n <= time:
                row[i], start[i] = r, filled[r]
                filled[r] += n
                break
        else:
            return None
        while first < rows - 1 and filled[first] == time:
            first += 1
    return row, start
