"""Packing minibatches into grids, on the host: the shape of the grid, and the sample in each of its cells.

XLA compiles a program for every shape, so few shapes are used: an earlier one is reused if the minibatch fits and
wastes little. Among new shapes a cost model chooses the fastest: a loop pays for every step and every cell.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from .layout import Layout

# The cost of a step of a loop besides its rows, as a number of rows: the weights are read once a step, and XLA's loop
# itself takes time. An LSTM of 300 cells on two cores: 97 µs a step and 11 µs a row, forward and backward together.
STEP_COST = 8
ROOM = 8  # a new shape gets an eighth more rows than the minibatch needs, so that similar ones fit
WASTE = 1.4  # a shape in use is reused if it costs at most this factor of the best new one ...
SLACK = 128  # ... plus this number of cells, which cost little compared with compiling


def bucket(n: int) -> int:
    """The size rounded up to a multiple of a quarter of a power of two.

    >>> [bucket(n) for n in (1, 5, 9, 33, 100, 1000)]
    [1, 5, 10, 40, 112, 1024]
    """
    step = max(1, (1 << max(n - 1, 1).bit_length() - 1) // 4)
    return -(-n // step) * step


@dataclass
class Sizes:
    """The sizes in use of the batch axis: a size that occurs again costs no compilation, and there are few of them.

    With `varies` (sequences, whose number differs between minibatches of as many samples) the second size of an octave
    gets room to grow, and replaces the smaller ones.
    """

    varies: bool = False
    used: list[int] = field(default_factory=list)

    def choose(self, n: int) -> int:
        """The smallest size in use from n to 2 n; otherwise n itself, rounded up if similar sizes are in use."""
        place = bisect_left(self.used, n)
        if place < len(self.used) and self.used[place] <= 2 * n:
            return self.used[place]
        near = [u for u in self.used if u <= n < 2 * u]
        size = max(n, 1)
        if near:
            size = bucket(n + n // 4 if self.varies else n)
        if near and self.varies:
            self.used = [u for u in self.used if u not in near]
        insort(self.used, size)
        return size


@dataclass(frozen=True)
class Grid:
    """The values of a layout on the host, and the sample in each cell.

    Shapes: index is int64 [time, rows]; padding repeats a sample. row, start, length, origin are int32 [size].
    """

    row: np.ndarray
    start: np.ndarray
    length: np.ndarray
    index: np.ndarray
    simple: bool
    full: bool
    origin: np.ndarray | None = None

    @property
    def layout(self) -> Layout:
        """The layout, as the compiled program takes it: jax makes device arrays of the vectors."""
        time, rows = self.index.shape
        row, start, length, origin = cast(Any, (self.row, self.start, self.length, self.origin))
        return Layout(row, start, length, time, rows, self.simple, self.full, origin)


GridShape = tuple[int, int, bool]  # time, rows, and whether each sequence has a row of its own


@dataclass
class Packer:
    """Chooses the shapes of the grids of one program, and keeps those in use."""

    has_loop: bool
    one_per_row: bool = False  # each sequence in a row of its own
    exact: bool = False  # and as many steps as the longest sequence has
    shapes: list[GridShape] = field(default_factory=list)

    def grid(self, lengths: np.ndarray, size: int) -> Grid:
        """A grid with sequences of these lengths; `size` is that of the batch axis. Shapes: lengths int32 [count]."""
        longest, total = int(lengths.max(initial=1)), int(lengths.sum())
        if self.exact:
            return self._simple(lengths, size, longest)
        best = self._cost(longest, size) if self.one_per_row else self._best_cost(longest, total)
        for shape in sorted(self.shapes, key=lambda shape: self._cost(*shape[:2])):
            if self._cost(*shape[:2]) > WASTE * best + SLACK:
                break
            grid = self._fill(lengths, size, shape)
            if grid is not None:
                return grid
        shape = self._new_shape(longest, total, size)
        grid = self._fill(lengths, size, shape)
        while grid is None:
            shape = (shape[0], bucket(shape[1] + 1), False)
            grid = self._fill(lengths, size, shape)
        self.shapes.append(shape)
        return grid

    def _new_shape(self, longest: int, total: int, size: int) -> GridShape:
        if self.one_per_row or self._cost(longest, size) <= 1.1 * self._best_cost(longest, total):
            similar = any(simple and rows == size for _, rows, simple in self.shapes)
            return (bucket(longest + longest // ROOM) if similar else longest), size, True
        time, rows = min(self._candidates(longest, total), key=lambda c: self._cost(*c))
        return time, bucket(rows + rows // ROOM), False

    def _fill(self, lengths: np.ndarray, size: int, shape: GridShape) -> Grid | None:
        """A grid of this shape with the sequences; None if they do not fit."""
        time, rows, simple = shape
        if lengths.max(initial=0) > time or (rows != size if simple else time * rows < lengths.sum()):
            return None
        if simple:
            return self._simple(lengths, size, time)
        positions = first_fit(lengths, time, rows)
        return None if positions is None else self._place(lengths, size, time, rows, *positions)

    def _cost(self, time: int, rows: int) -> float:
        """The time for a grid, in cells."""
        return time * (rows + (STEP_COST if self.has_loop else 0))

    def _candidates(self, longest: int, total: int) -> list[tuple[int, int]]:
        factors = (1, 1.25, 1.5, 2, 3, 4, 6, 8)
        times = {bucket(int(longest * f)) for f in factors} if self.has_loop else {bucket(max(total, 1))}
        return [(t, max(1, -(-total // t))) for t in times]

    def _best_cost(self, longest: int, total: int) -> float:
        return min(self._cost(*c) for c in self._candidates(longest, total))

    def _simple(self, lengths: np.ndarray, size: int, time: int) -> Grid:
        """A grid with sequence i alone in row i."""
        count = len(lengths)
        length = np.zeros(size, np.int32)
        length[:count] = lengths
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if count else np.zeros(1, np.int64)
        offsets = np.concatenate([offsets, np.zeros(size - count, np.int64)])
        steps = np.minimum(np.arange(time)[:, None], np.maximum(length - 1, 0)[None, :])
        full = count == size and bool((length == time).all())
        row = np.arange(size, dtype=np.int32)
        return Grid(row, np.zeros(size, np.int32), length, offsets[None, :] + steps, True, full)

    @staticmethod
    def _place(
        lengths: np.ndarray, size: int, time: int, rows: int, row: np.ndarray, start: np.ndarray
    ) -> Grid:
        """A grid with the sequences at these rows and starts."""
        count = len(lengths)
        index = np.zeros((time, rows), np.int64)
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
