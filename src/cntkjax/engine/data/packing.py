"""Packing minibatches into grids, on the host: which shapes to use, and which sample stands in which cell.

XLA compiles anew for every shape, so shapes are chosen from few: one used before is taken again when it fits and
wastes little. Among new ones, the fastest is chosen by a model of the costs: a loop pays for every step and every cell.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .layout import Layout

# What a step of a loop costs besides its rows, as a number of rows: the weights are read once a step, and XLA's loop
# itself takes time. An LSTM of 300 cells on two cores: 97 µs a step and 11 µs a row, forward and backward together.
STEP_COST = 8
ROOM = 8  # a new shape gets an eighth more rows than the minibatch needs, for others like it
WASTE = 1.4  # a shape in use is taken again if it costs at most this factor of the best new one ...
SLACK = 128  # ... and these cells more, which are little beside the time of compiling


def bucket(n: int) -> int:
    """The next larger size that is a multiple of a quarter of a power of two.

    >>> [bucket(n) for n in (1, 5, 9, 33, 100, 1000)]
    [1, 5, 10, 40, 112, 1024]
    """
    step = max(1, (1 << max(n - 1, 1).bit_length() - 1) // 4)
    return -(-n // step) * step


@dataclass
class Sizes:
    """Sizes in use of the batch axis: the same number again costs no compilation, and few are ever made.

    With `varies` (sequences: their number changes with every minibatch of as many samples) a second size of an
    octave is made with room to grow, and takes the place of the smaller ones.
    """

    varies: bool = False
    used: list[int] = field(default_factory=list)

    def choose(self, n: int) -> int:
        """The smallest size in use from n to 2 n; otherwise n itself, rounded up if there are already near ones."""
        at = bisect_left(self.used, n)
        if at < len(self.used) and self.used[at] <= 2 * n:
            return self.used[at]
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
    """A layout with its numbers, and for each cell the sample that stands there.

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
        """What the compiled program gets."""
        time, rows = self.index.shape
        return Layout(self.row, self.start, self.length, time, rows, self.simple, self.full, self.origin)


Shape = tuple[int, int, bool]  # time, rows, one sequence a row


@dataclass
class Packer:
    """Chooses shapes for the minibatches of one program; remembers those in use."""

    has_loop: bool
    alone: bool = False  # each sequence in a row of its own
    exact: bool = False  # and no step more than the longest sequence has
    shapes: list[Shape] = field(default_factory=list)

    def grid(self, lengths: np.ndarray, size: int) -> Grid:
        """Place sequences of these lengths; `size` is that of the batch axis."""
        longest, total = int(lengths.max(initial=1)), int(lengths.sum())
        if self.exact:
            return self._simple(lengths, size, longest)
        best = self._cost(longest, size) if self.alone else self._best_cost(longest, total)
        for shape in sorted(self.shapes, key=lambda shape: self._cost(*shape[:2])):
            if self._cost(*shape[:2]) > WASTE * best + SLACK:
                break
            made = self._fill(lengths, size, shape)
            if made is not None:
                return made
        shape = self._new_shape(longest, total, size)
        made = self._fill(lengths, size, shape)
        while made is None:
            shape = (shape[0], bucket(shape[1] + 1), False)
            made = self._fill(lengths, size, shape)
        self.shapes.append(shape)
        return made

    def _new_shape(self, longest: int, total: int, size: int) -> Shape:
        if self.alone or self._cost(longest, size) <= 1.1 * self._best_cost(longest, total):
            near = any(simple and rows == size for _, rows, simple in self.shapes)
            return (bucket(longest + longest // ROOM) if near else longest), size, True
        time, rows = min(self._candidates(longest, total), key=lambda c: self._cost(*c))
        return time, bucket(rows + rows // ROOM), False

    def _fill(self, lengths: np.ndarray, size: int, shape: Shape) -> Grid | None:
        """Place the sequences in a grid of this shape; None if they do not fit."""
        time, rows, simple = shape
        if lengths.max(initial=0) > time or (rows != size if simple else time * rows < lengths.sum()):
            return None
        if simple:
            return self._simple(lengths, size, time)
        placed = first_fit(lengths, time, rows)
        return None if placed is None else self._place(lengths, size, time, rows, *placed)

    def _cost(self, time: int, rows: int) -> float:
        return time * (rows + (STEP_COST if self.has_loop else 0))

    def _candidates(self, longest: int, total: int) -> list[tuple[int, int]]:
        factors = (1, 1.25, 1.5, 2, 3, 4, 6, 8)
        times = {bucket(int(longest * f)) for f in factors} if self.has_loop else {bucket(max(total, 1))}
        return [(t, max(1, -(-total // t))) for t in times]

    def _best_cost(self, longest: int, total: int) -> float:
        return min(self._cost(*c) for c in self._candidates(longest, total))

    def _simple(self, lengths: np.ndarray, size: int, time: int) -> Grid:
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
    """Rows and starts by first-fit decreasing; None if the sequences don't fit.

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
