"""The shapes in which the minibatches of a program run, and for which it is to be compiled next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ...graph.axis import Axis
from ...graph.variable import Variable
from ..data.packing import Grid, pack, pack_with_more_rows
from ..data.shape_policy import Prices, ShapePolicy
from ..data.shapes import Lengths, MinibatchSpace, Need, Shape

_Policy: TypeAlias = ShapePolicy[Need, Shape]
_CAPACITY = 64  # sizes that are remembered of a variable


class Packing(NamedTuple):
    """The shape in which a minibatch runs, and its sequences in grids, in the order of the sequence axes."""

    shape: Shape
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

    def choose(self, sizes: Sizes, variables: Sequence[Variable]) -> Packing:
        """The best shape there is, or else a new one. `variables`: those that are fed, maybe to other programs too."""
        need, policy = sizes.need, self.policy(sizes.variant)
        packings = (_packing(shape, sizes) for shape in policy.fitting(need))
        packing = next((p for p in packings if p is not None), None)
        if packing is None:
            seen = [*policy.seen, *_seen_elsewhere(variables, sizes)]
            packing = _packing_with_more_rows(self.space.with_room(need, seen), sizes)
            policy.add(packing.shape)
        if policy.record(need):
            for variable in (v for v in variables if v.dynamic_axes):
                _remember(variable, list(sizes.lengths), need)
        return packing

    def improve(self, sizes: Sizes) -> Packing | None:
        """A packing in a shape that is worth to be compiled by now; None if there is none, or it does not fit."""
        shape = self.policy(sizes.variant).wanted()
        if shape is None or self.space.cost(shape, sizes.need) == float("inf"):
            return None
        return _packing(shape, sizes)


def _packing(shape: Shape, sizes: Sizes) -> Packing | None:
    """The sequences of a minibatch in a shape; None if they do not fit."""
    grids = []
    for lengths, grid_shape in zip(sizes.lengths.values(), shape.grids, strict=True):
        grid = pack(lengths, shape.batch, grid_shape)
        if grid is None:
            return None
        grids.append(grid)
    return Packing(shape, grids)


def _packing_with_more_rows(shape: Shape, sizes: Sizes) -> Packing:
    """The sequences of a minibatch in a shape that has as many more rows as they need."""
    grids = [
        pack_with_more_rows(lengths, shape.batch, grid_shape)
        for lengths, grid_shape in zip(sizes.lengths.values(), shape.grids, strict=True)
    ]
    return Packing(shape._replace(grids=tuple(grid.shape for grid in grids)), grids)


# Programs that are fed by the same variables, as for training and testing, get minibatches of similar sizes.
_sizes_of: WeakKeyDictionary[Variable, OrderedDict[Hashable, tuple[int, dict[Axis, Lengths]]]] = WeakKeyDictionary()


def _remember(variable: Variable, axes: Sequence[Axis], need: Need) -> None:
    sizes = _sizes_of.setdefault(variable, OrderedDict())
    sizes[need] = need.number, dict(zip(axes, need.lengths, strict=True))
    while len(sizes) > _CAPACITY:
        sizes.popitem(last=False)


def _seen_elsewhere(variables: Sequence[Variable], sizes: Sizes) -> list[Need]:
    """The sizes of minibatches in which these variables were fed to any program."""
    with_batch = next((v for v in variables if v.dynamic_axes), None)
    seen = [] if with_batch is None else list(_sizes_of.get(with_batch, {}).values())
    return [
        Need(count, tuple(lengths[axis] for axis in sizes.lengths), sizes.widths)
        for count, lengths in seen
        if all(axis in lengths for axis in sizes.lengths)
    ]


__all__ = ["Packing", "ShapeChoice", "Sizes"]
