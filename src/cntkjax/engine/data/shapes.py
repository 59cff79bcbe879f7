"""The shapes of programs: sizes of the batch axis, of grids, and of sparse samples; what fits, and what it costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, inf, log, sqrt
from operator import attrgetter
from typing import Any, NamedTuple

from ..xla.platform import lowering
from .packing import GridShape, bucket

MASK_COST = 1.02  # of computing with masks, as a factor
ELEMENTS = 16  # of a sparse sample cost as much as its other computations
FILLING = 0.97  # of the cells of a grid, the most that first-fit can be expected to fill
# A new shape leaves room for larger minibatches. Readers fill them up to a number of samples, so there are hardly more
# of these, by a factor; and the number of sequences, which cost little if they share rows, varies by so many standard
# deviations (by one where each has a row, once it has varied). Sequences are longer by a factor at least, and up to the
# longest of so many times as many if that costs up to so much more: then running in this shape, until a tighter one
# pays, costs less than twice as much as in that.
MORE_SAMPLES, DEVIATIONS, LONGER, MORE_TO_COME, ROOM_COST = 1.06, 3, 1.25, 100, 1.5
ALIKE = 1.5  # the longest of sequences, to their mean, at most, if all are of about the same length
QUANTILES = 12  # of the sizes so far, up to which candidates fit


class Lengths(NamedTuple):
    """The longest sequence of a minibatch along an axis, and the sum of all lengths."""

    longest: int
    total: int


class Need(NamedTuple):
    """What a minibatch needs of a program's shapes.

    `number`: of sequences, or of samples without a sequence axis. `lengths`: for each sequence axis. `widths`: for each
    argument the most elements of a sparse sample, rounded up, 0 if it is dense or one-hot (which fits any width).
    """

    number: int
    lengths: tuple[Lengths, ...] = ()
    widths: tuple[int, ...] = ()

    @property
    def is_uniform(self) -> bool:
        """True if all sequences along each axis have the same length."""
        return all(total == longest * self.number for longest, total in self.lengths)

    def union(self, other: Need) -> Need:
        """What fits both."""
        return Need(
            max(self.number, other.number),
            tuple(
                Lengths(max(a.longest, b.longest), max(a.total, b.total))
                for a, b in zip(self.lengths, other.lengths, strict=True)
            ),
            tuple(map(max, self.widths, other.widths)),
        )


class MinibatchShape(NamedTuple):
    """The shapes of a program. `full`: for minibatches of exactly this size, so that it has no masks."""

    batch: int
    full: bool
    grids: tuple[GridShape, ...] = ()
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class AxisTraits:
    """What decides on grids along a sequence axis.

    `one_per_row`: each sequence is in a row of its own; `exact`: with as many steps as the longest sequence has.
    """

    has_loop: bool
    one_per_row: bool = False
    exact: bool = False

    @property
    def step_cost(self) -> int:
        """The cost of a step besides its rows, in rows."""
        return lowering().step_cost if self.has_loop else 0

    @property
    def shares_rows(self) -> bool:
        """Whether a row may have several sequences, so that their number matters less than their samples."""
        return not (self.one_per_row or self.exact)

    def grid(self, count: int, longest: int, total: int) -> GridShape:
        """The cheapest grid: a loop pays for every step and every cell, and without loops only cells count.

        One row for all sequences is best without loops, a few rows of several sequences each with loops, and one row
        per sequence if the lengths are nearly equal.
        """
        if not self.shares_rows:
            return GridShape(longest, count, True)
        factors = (1, 1.25, 1.5, 2, 3, 4, 6, 8)
        times = {bucket(int(longest * f)) for f in factors} if self.has_loop else {bucket(total)}
        cost, time, rows = min((t * (-(-total // t) + self.step_cost), t, -(-total // t)) for t in times)
        if longest * (count + self.step_cost) <= 1.1 * cost:
            return GridShape(longest, count, True)
        return GridShape(time, rows if rows == 1 else max(rows, ceil(total / (FILLING * time))), False)


@dataclass(frozen=True)
class MinibatchSpace:
    """The shapes that minibatches may have; see `shape_policy.Space`. `exact_batch`: the batch axis is never padded."""

    axes: tuple[AxisTraits, ...] = ()
    exact_batch: bool = False

    @property
    def shares_rows(self) -> bool:
        """Whether a row may have several sequences, along all axes."""
        return all(axis.shares_rows for axis in self.axes)

    def work(self, shape: MinibatchShape) -> float:
        """The cost of a minibatch, in cells."""
        cells = float(shape.batch)
        for grid, axis in zip(shape.grids, self.axes, strict=True):
            cells += grid.time * (grid.rows + axis.step_cost)
        return cells * (1 + sum(shape.widths) / ELEMENTS) * (1 if shape.full else MASK_COST)

    def cost(self, shape: MinibatchShape, need: Need) -> float:
        """As `ShapeSpace.cost`."""
        if need.number > shape.batch or (need.number < shape.batch and (shape.full or self.exact_batch)):
            return inf
        for (longest, total), grid, axis in zip(need.lengths, shape.grids, self.axes, strict=True):
            cells = grid.time * grid.rows
            if longest > grid.time or total > cells or (shape.full and total < cells):
                return inf
            if (axis.exact and longest < grid.time) or (not grid.simple and grid.rows > 1 and total > FILLING * cells):
                return inf
        return inf if any(n > w for n, w in zip(need.widths, shape.widths, strict=True)) else self.work(shape)

    def tightest(self, need: Need) -> MinibatchShape:
        """As `ShapeSpace.tightest`."""
        count = max(need.number, 1)
        grids = tuple(
            axis.grid(count, max(longest, 1), max(total, 1))
            for (longest, total), axis in zip(need.lengths, self.axes, strict=True)
        )
        full = all(g.simple and g.time * g.rows == total for g, (_, total) in zip(grids, need.lengths, strict=True))
        return MinibatchShape(count, full and need.number > 0, grids, need.widths)

    def union(self, a: Need, b: Need) -> Need:
        """As `ShapeSpace.union`."""
        return a.union(b)

    def rounded(self, need: Need) -> Hashable:
        """As `ShapeSpace.rounded`."""
        return self._rounded(need), need.is_uniform

    def _rounded(self, need: Need) -> Need:
        lengths = (
            Lengths(longest if axis.exact else bucket(longest), bucket(total))
            for (longest, total), axis in zip(need.lengths, self.axes, strict=True)
        )
        return Need(need.number if self.exact_batch else bucket(need.number), tuple(lengths), need.widths)

    def with_room(self, need: Need, seen: Sequence[Need]) -> MinibatchShape:
        """As `ShapeSpace.with_room`: exact for the first of minibatches that may all be alike."""
        shape = self._with_room(need, seen)
        wider = shape._replace(widths=tuple(map(max, zip(shape.widths, *(n.widths for n in seen), strict=True))))
        return wider if self.work(wider) <= ROOM_COST * self.work(shape) else shape

    def _with_room(self, need: Need, seen: Sequence[Need]) -> MinibatchShape:
        similar = [n for n in seen if n != need and self._are_similar(n, need)]
        if self.exact_batch or (need.is_uniform and (not similar or need in seen)):
            return self.tightest(need)
        largest = reduce(Need.union, similar, need)
        if largest.is_uniform and all(n.is_uniform for n in similar):
            return self._masked(self._rounded(need) if largest == need else largest)
        longer = [
            i for i, (n, axis) in enumerate(zip(largest.lengths, self.axes, strict=True))
            if not axis.exact and (not self.shares_rows or all(m.lengths[i].longest < n.longest for m in similar))
        ]
        lengths = []
        for i, ((longest, total), axis) in enumerate(zip(largest.lengths, self.axes, strict=True)):
            steps = need.lengths[i].longest if axis.exact else ceil(longest * LONGER) if i in longer else longest
            lengths.append(Lengths(steps, ceil(total * MORE_SAMPLES)))
        number = largest.number
        if self.shares_rows:
            number += ceil(DEVIATIONS * sqrt(number))
        elif any(n.number < number for n in similar):
            number += int(sqrt(number))
        roomy = Need(number, tuple(lengths), largest.widths)
        return self._with_rows(self._masked(self._with_longer(roomy, longer, largest)), largest)

    def _with_longer(self, need: Need, axes: Sequence[int], minibatch: Need) -> Need:
        """With room along axes for as long sequences as may come, while a minibatch does not cost too much more.

        The axes get it in turn, a step each.
        """
        most, waiting = ROOM_COST * self._work_of(minibatch), deque(axes)
        likely = {axis: bucket(_longest_to_come(minibatch, axis)) for axis in axes}
        while waiting:
            axis = waiting.popleft()
            lengths = list(need.lengths)
            lengths[axis] = lengths[axis]._replace(longest=bucket(lengths[axis].longest + 1))
            longer = need._replace(lengths=tuple(lengths))
            if lengths[axis].longest <= likely[axis] and self._work_of(longer) <= most:
                need = longer
                waiting.append(axis)
        return need

    def _with_rows(self, shape: MinibatchShape, minibatch: Need) -> MinibatchShape:
        """With as many rows as sequences like those of a minibatch need, while it does not cost too much more."""
        most = ROOM_COST * self._work_of(minibatch)
        for i, (grid, lengths) in enumerate(zip(shape.grids, minibatch.lengths, strict=True)):
            filled = _filling(minibatch.number, lengths, grid.time) * grid.time
            needed = 1 if grid.simple or grid.rows == 1 else ceil(lengths.total * MORE_SAMPLES / filled)
            for rows in range(grid.rows + 1, needed + 1):
                larger = shape._replace(grids=(*shape.grids[:i], grid._replace(rows=rows), *shape.grids[i + 1 :]))
                if self.work(larger) > most:
                    break
                shape = larger
        return shape

    def _are_similar(self, a: Need, b: Need) -> bool:
        """Whether one shape may do for both: not if they need different numbers of steps along an exact axis."""
        pairs = zip(a.lengths, b.lengths, self.axes, strict=True)
        if any(axis.exact and m.longest != n.longest for m, n, axis in pairs):
            return False
        small, large = sorted(map(self._work_of, (a, b)))
        return large < 2 * small

    def _work_of(self, need: Need) -> float:
        return self.work(self._masked(need))

    def _masked(self, need: Need) -> MinibatchShape:
        return self.tightest(need)._replace(full=False)

    def candidates(self, needs: Sequence[Need]) -> Iterator[MinibatchShape]:
        """As `ShapeSpace.candidates`: for the minibatches up to each quantile, by cost and by each size."""
        orders: list[Callable[[Need], Any]] = [self._work_of, attrgetter("number")]
        orders += [partial(_length, axis, kind) for axis in range(len(self.axes)) for kind in Lengths._fields]
        for order in orders:
            ranked = sorted(needs, key=order)
            stops = sorted({1, *(ceil(len(ranked) * k / QUANTILES) for k in range(1, QUANTILES + 1))})
            for stop in stops:
                largest = reduce(Need.union, ranked[:stop])
                yield self._masked(self._rounded(largest))
                if largest.is_uniform:
                    yield self.tightest(largest)


def _filling(number: int, lengths: Lengths, time: int) -> float:
    """The part of a grid that first-fit fills in nine of ten minibatches like one.

    Sequences of about the same length have a row each where those to come, which may be longer, do not share one. The
    more there are, the better others fit.
    """
    mean = lengths.total / number
    is_alone = lengths.longest <= ALIKE * mean and 2 * LONGER * lengths.longest > time
    return mean / time if is_alone else 1 - 0.5 / sqrt(number)


def _longest_to_come(need: Need, axis: int) -> int:
    """About the longest of many more sequences, if few of their lengths are far above the mean, as in most texts.

    The longest of n values with an exponential tail is about mean + scale * (H_n - 1), with harmonic numbers H_n.
    """
    longest, total = need.lengths[axis]
    if need.number < 2:
        return longest
    mean, harmonic = total / need.number, sum(1 / n for n in range(1, need.number + 1))
    return ceil(longest + (longest - mean) / (harmonic - 1) * log(MORE_TO_COME))


def _length(axis: int, kind: str, need: Need) -> int:
    return getattr(need.lengths[axis], kind)


__all__ = ["AxisTraits", "Lengths", "MinibatchSpace", "Need", "MinibatchShape"]
