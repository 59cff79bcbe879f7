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


class Columns(NamedTuple):
    """Where CNTK has the samples of a minibatch: columns of its matrices, step by step, of which some are gaps.

    Shapes: of_sample is int [samples], in the order of the sequences. `number`: of all columns. `rows`: of a step.
    """

    of_sample: np.ndarray
    number: int
    rows: int

    @property
    def backwards(self) -> np.ndarray:
        """The same where the last step comes first. Shapes: int [samples]."""
        return self.number - self.rows + 2 * (self.of_sample % self.rows) - self.of_sample


def columns(lengths: np.ndarray, slots: np.ndarray | None = None) -> Columns:
    """The columns of sequences of these lengths: each is in the first row that has room, as in CNTK 2.7.

    `slots`: a row for each that is in one already, behind those before it; see `Ragged`.
    Shapes: lengths, slots int32 [count].

    >>> columns(np.array([1, 3, 2, 2]))  # the first row has sequences 0 and 2
    Columns(of_sample=array([0, 1, 4, 7, 3, 6, 2, 5]), number=9, rows=3)
    """
    lengths = np.asarray(lengths, np.int64)
    time = int(lengths.max(initial=0))
    row, start = np.arange(len(lengths)), np.zeros(len(lengths), np.int64)
    filled = np.zeros(len(lengths) + 1, np.int64)
    if slots is not None:
        row = np.unique(slots, return_inverse=True)[1]
        time = int(np.bincount(row, lengths).max(initial=0))
    is_packed = slots is not None or bool(np.any(lengths < time))
    for i, n in enumerate(lengths.tolist() if is_packed else ()):
        r = row[i] = int(np.argmax(filled + n <= time)) if slots is None else row[i]
        start[i] = filled[r]
        filled[r] += n
    rows = int(row.max(initial=-1)) + 1
    step = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Columns((np.repeat(start, lengths) + step) * rows + np.repeat(row, lengths), time * rows, rows)


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
