"""The shapes in which the minibatches of a program run, and for which it is to be compiled next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import inf
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from ..._best_effort import BestEffort
from ...graph.axis import Axis
from ...graph.variable import Edge
from ..data.packing import Grid, first_fit, pack, pack_with_more_rows
from ..data.shape_policy import Prices, ShapePolicy
from ..data.shapes import Lengths, MinibatchShape, MinibatchSpace, Need

_Policy: TypeAlias = ShapePolicy[Need, MinibatchShape]
_CHOOSING = BestEffort("choose a shape for a minibatch by those before it", "it runs in its own")
_REMEMBERING = BestEffort("remember the sizes of a minibatch", "they do not count in the choice of shapes")
_IMPROVING = BestEffort("look for better fitting shapes", "minibatches run in the programs that there are")
_CAPACITY = 64  # sizes that are remembered of a variable


class Packing(NamedTuple):
    """The shape in which a minibatch runs, and its sequences in grids, in the order of the sequence axes."""

    shape: MinibatchShape
    grids: list[Grid]


class Sizes(NamedTuple):
    """The sizes of a minibatch.

    Shapes: lengths int32 [sequences], for each sequence axis. `number`, `widths`: see `Need`. `variant`: what else
    decides on the program besides shapes.
    """

    number: int
    lengths: Mapping[Axis, np.ndarray]
    widths: tuple[int, ...]
    variant: Hashable

    @property
    def need(self) -> Need:
        """What it needs of a program."""
        if not self.lengths:
            return Need(self.number, (), self.widths)
        lengths = [Lengths(int(n.max(initial=0)), int(n.sum())) for n in self.lengths.values()]
        return Need(self.number, tuple(lengths), self.widths)


class Agreed(NamedTuple):
    """The minibatches of all workers, share by share, and the prices by which all choose their shapes; see `Prices`."""

    sizes: Sequence[Sizes]
    seconds_per_work: float
    compilation_seconds: float


class Choice(NamedTuple):
    """What decided on the shape of a minibatch: it is chosen again as long as `fitting` is what the policy answers."""

    policy: _Policy
    need: Need
    fitting: Sequence[MinibatchShape]


class ShapeChoice:
    """Chooses shapes for the minibatches of one program, for each of its variants."""

    def __init__(self, space: MinibatchSpace, prices: Prices) -> None:
        self.space, self.prices = space, prices
        self._policies: dict[Hashable, _Policy] = {}

    def policy(self, variant: Hashable) -> _Policy:
        """The policy of a variant."""
        if variant not in self._policies:
            self._policies[variant] = ShapePolicy(self.space, self.prices)
        return self._policies[variant]

    def choose(
        self, sizes: Sequence[Sizes], variables: Sequence[Edge], agreed: Agreed | None = None
    ) -> list[Packing]:
        """The best shape there is, or else a new one, for the shares of a minibatch.

        `variables`: those that are fed, maybe to other programs too. `agreed`: the minibatches of all workers are to
        have one shape, so it depends on nothing else.
        """
        packings = _CHOOSING.attempt(self._choose, sizes, variables, agreed)
        if packings is None:
            everyone = sizes if agreed is None else agreed.sizes
            packings = self._packings_with_more_rows(self.space.tightest(_need(everyone)), sizes, everyone)
        _REMEMBERING.attempt(self._remember, sizes, variables, agreed)
        return packings

    def _choose(
        self, sizes: Sequence[Sizes], variables: Sequence[Edge], agreed: Agreed | None
    ) -> list[Packing]:
        policy, everyone = self.policy(sizes[0].variant), sizes if agreed is None else agreed.sizes
        need = _need(everyone)
        if agreed is not None:
            policy.prices = agreed
        choices = (self._packings(shape, sizes, everyone) for shape in policy.fitting(need))
        packings = next((p for p in choices if p is not None), None)
        if packings is None:
            seen = policy.seen if agreed is not None else [*policy.seen, *_seen_elsewhere(variables, sizes[0])]
            shape = self.space.with_room(need, seen)
            packings = self._packings_with_more_rows(shape, sizes, everyone)
            policy.add(packings[0].shape)
        return packings

    def _remember(self, sizes: Sequence[Sizes], variables: Sequence[Edge], agreed: Agreed | None) -> None:
        need = _need(sizes if agreed is None else agreed.sizes)
        if self.policy(sizes[0].variant).record(need):
            for variable in (v for v in variables if v.dynamic_axes):
                _remember(variable, list(sizes[0].lengths), need)

    def choice(self, sizes: Sizes) -> Choice:
        """What decides now on the shape of a minibatch of these sizes."""
        policy = self.policy(sizes.variant)
        return Choice(policy, sizes.need, policy.fitting(sizes.need))

    def repeats(self, choice: Choice) -> bool:
        """Count one more minibatch of these sizes; False, without that, if it may get another shape now."""
        policy = choice.policy
        if policy.fitting(choice.need) is not choice.fitting or policy.wanted() is not None:
            return False
        policy.record(choice.need)
        return True

    def improve(self, sizes: Sequence[Sizes], agreed: Agreed | None = None) -> list[Packing] | None:
        """Packings in a shape that is worth to be compiled by now; None if there is none, or it does not fit."""
        return _IMPROVING.attempt(self._improve, sizes, agreed)

    def _improve(self, sizes: Sequence[Sizes], agreed: Agreed | None) -> list[Packing] | None:
        shape = self.policy(sizes[0].variant).wanted()
        return None if shape is None else self._packings(shape, sizes, sizes if agreed is None else agreed.sizes)

    def _packings(
        self, shape: MinibatchShape, sizes: Sequence[Sizes], everyone: Sequence[Sizes]
    ) -> list[Packing] | None:
        """The sequences of each share in a shape; None if they do not fit, or those of `everyone` do not."""
        if any(self.space.cost(shape, s.need) == inf for s in everyone):
            return None
        if everyone is not sizes and not all(_fit(s, shape) for s in everyone):
            return None
        grids = [[pack(n, shape.batch, g) for n, g in zip(s.lengths.values(), shape.grids, strict=True)] for s in sizes]
        return None if any(g is None for share in grids for g in share) else _alike(shape, cast(Any, grids), everyone)

    def _packings_with_more_rows(
        self, shape: MinibatchShape, sizes: Sequence[Sizes], everyone: Sequence[Sizes]
    ) -> list[Packing]:
        """The sequences of each share in a shape that has as many more rows as those of `everyone` need."""
        if len(everyone) > 1 and any(self.space.cost(shape, s.need) == inf for s in everyone):
            shape = shape._replace(full=False)
        for s in everyone:
            grids = [
                pack_with_more_rows(lengths, shape.batch, grid).shape
                for lengths, grid in zip(s.lengths.values(), shape.grids, strict=True)
            ]
            shape = shape._replace(grids=tuple(grids))
        packed = [
            [pack_with_more_rows(n, shape.batch, g) for n, g in zip(s.lengths.values(), shape.grids, strict=True)]
            for s in sizes
        ]
        return _alike(shape, packed, everyone)


def _need(sizes: Sequence[Sizes]) -> Need:
    return reduce(Need.union, (s.need for s in sizes))


def _fit(sizes: Sizes, shape: MinibatchShape) -> bool:
    """Whether sequences that are no more than the cells of a shape can be placed in it."""
    grids = zip(sizes.lengths.values(), shape.grids, strict=True)
    return all(grid.simple or first_fit(n, grid.time, grid.rows) is not None for n, grid in grids)


def _alike(shape: MinibatchShape, shares: Sequence[Sequence[Grid]], everyone: Sequence[Sizes]) -> list[Packing]:
    """Packings of shares, with masks in all of them if one of `everyone` needs any."""
    full = [all(_fills(s.need, axis, shape) for s in everyone) for axis in range(len(shape.grids))]
    return [
        Packing(shape, [g if g.full == f else replace(g, full=f) for g, f in zip(grids, full, strict=True)])
        for grids in shares
    ]


def _fills(need: Need, axis: int, shape: MinibatchShape) -> bool:
    grid = shape.grids[axis]
    return need.number == shape.batch and need.lengths[axis].total == grid.time * grid.rows


# Programs that are fed by the same variables, as for training and testing, get minibatches of similar sizes.
_sizes_of: WeakKeyDictionary[Edge, OrderedDict[Hashable, tuple[int, dict[Axis, Lengths]]]] = WeakKeyDictionary()


def _remember(variable: Edge, axes: Sequence[Axis], need: Need) -> None:
    sizes = _sizes_of.setdefault(variable, OrderedDict())
    sizes[need] = need.number, dict(zip(axes, need.lengths, strict=True))
    while len(sizes) > _CAPACITY:
        sizes.popitem(last=False)


def _seen_elsewhere(variables: Sequence[Edge], sizes: Sizes) -> list[Need]:
    """The sizes of minibatches in which these variables were fed to any program."""
    with_batch = next((v for v in variables if v.dynamic_axes), None)
    seen = [] if with_batch is None else list(_sizes_of.get(with_batch, {}).values())
    return [
        Need(count, tuple(lengths[axis] for axis in sizes.lengths), sizes.widths)
        for count, lengths in seen
        if all(axis in lengths for axis in sizes.lengths)
    ]


__all__ = ["Agreed", "Choice", "Packing", "ShapeChoice", "Sizes"]
