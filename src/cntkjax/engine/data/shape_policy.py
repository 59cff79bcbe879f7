"""When to compile another program: an online policy for the shapes of minibatches, as in the ski-rental problem.

A minibatch that fits the shapes of a program runs there, however much padding that takes. What that wastes is added up,
and a better fitting program is bought once it would have saved, over the minibatches so far, what its compilation
costs. Nothing here knows of arrays or XLA: a `ShapeSpace` says what fits where, and at which cost.

With C for a compilation, and d_i for the least cost of minibatch i in any program that has been bought in the end:
no shape's savings ``sum(max(0, d_i - cost_i(shape)))`` exceed C by more than those of one minibatch, since it would
have been bought; and each purchase lowers the sum of d_i by C at least. So with K purchases

- the total is at most twice the cost of running all minibatches in the programs that are needed at once, and
- at most the cost of the best m shapes in hindsight, plus m + 2 K compilations: with as many purchases as the best
  choice makes it is at most twice as expensive as that, plus one compilation for each.

Compilations that cannot be put off, since a minibatch fits no program, come on top. They leave room, by a constant
factor, so their number grows with the logarithm of the sizes.

Source: Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching", Algorithmica 3 (1988), for one purchase;
        Fotakis, "A primal-dual algorithm for online non-uniform facility location", J. Discrete Algorithms 5 (2007),
        for the savings of shapes that share minibatches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

Need = TypeVar("Need", bound=Hashable)
Shape = TypeVar("Shape", bound=Hashable)

_CAPACITY = 256  # groups of similar minibatches that are remembered
_KNOWN = 4096  # sizes of which is known at once where they fit, and in which group they are
_PATIENCE = 0.05  # candidates are compared when one of them may be worth its compilation, and this much later


class ShapeSpace(Protocol[Need, Shape]):
    """What minibatches need, and the shapes that programs have."""

    def cost(self, shape: Shape, need: Need) -> float:
        """The cost of a minibatch in a program of this shape; infinite if it does not fit."""
        ...

    def tightest(self, need: Need) -> Shape:
        """The cheapest shape for one minibatch."""
        ...

    def rounded(self, need: Need) -> Hashable:
        """Equal for minibatches of about the same size; the number of different ones grows with the logarithm."""
        ...

    def union(self, a: Need, b: Need) -> Need:
        """What fits both."""
        ...

    def with_room(self, need: Need, seen: Sequence[Need]) -> Shape:
        """A shape for a minibatch that fits no program, and for similar ones; `seen`: those so far."""
        ...

    def candidates(self, needs: Sequence[Need]) -> Iterable[Shape]:
        """Shapes that may be best for several of these minibatches."""
        ...


class Prices(Protocol):
    """What running and compiling cost."""

    @property
    def seconds_per_work(self) -> float:
        """The time that a unit of `ShapeSpace.cost` takes."""
        ...

    @property
    def compilation_seconds(self) -> float:
        """The time that compiling a program takes."""
        ...


@dataclass
class _Entry(Generic[Need]):
    """Minibatches of about the same size: the largest, their number, and the least cost of one of them.

    `waste`: what that is more than in a shape of their own.
    """

    need: Need
    number: int
    cost: float
    waste: float


class ShapePolicy(Generic[Need, Shape]):
    """Chooses the shapes in which minibatches run, and the next one to be compiled.

    `ready`: the shapes of the programs that there are; `pending`: of those that are being compiled.
    """

    def __init__(self, space: ShapeSpace[Need, Shape], prices: Prices) -> None:
        self.space, self.prices = space, prices
        self.ready: list[Shape] = []
        self.pending: list[Shape] = []
        self._rejected: set[Shape] = set()
        self._entries: OrderedDict[Hashable, _Entry[Need]] = OrderedDict()
        self._entry_of: dict[Need, _Entry[Need]] = {}
        self._fitting: dict[Need, list[Shape]] = {}
        self._waste = 0.0
        self._compare_at = 0.0  # the waste at which one of the candidates may be worth its compilation

    @property
    def seen(self) -> list[Need]:
        """The sizes of minibatches so far, one for each group of similar ones."""
        return [entry.need for entry in self._entries.values()]

    def fitting(self, need: Need) -> list[Shape]:
        """The shapes that a minibatch fits into, cheapest first; then pending ones, which would be waited for."""
        shapes = self._fitting.get(need)
        if shapes is None:
            shapes = self._fitting[need] = [*self._cheapest(self.ready, need), *self._cheapest(self.pending, need)]
        return shapes

    def _cheapest(self, shapes: Sequence[Shape], need: Need) -> list[Shape]:
        costs = sorted((self.space.cost(shape, need), i) for i, shape in enumerate(shapes))
        return [shapes[i] for cost, i in costs if cost < inf]

    def record(self, need: Need) -> bool:
        """Count a minibatch, for which there is a shape now; whether its size is a new one."""
        entry = self._entry_of.get(need)
        is_new = entry is None
        if entry is None:
            entry = self._entry_of[need] = self._group(need)
        entry.number += 1
        self._waste += entry.waste
        return is_new

    def _group(self, need: Need) -> _Entry[Need]:
        """The minibatches that this one belongs to."""
        key = self.space.rounded(need)
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = _Entry(need, 0, 0.0, 0.0)
            self._price(entry)
        elif entry.need != need:
            self._waste -= entry.number * entry.waste
            entry.need = self.space.union(entry.need, need)
            self._price(entry)
            self._waste += entry.number * entry.waste
        self._entries[key] = entry
        if len(self._entries) > _CAPACITY:
            _, oldest = self._entries.popitem(last=False)
            self._waste -= oldest.number * oldest.waste
            self._entry_of.clear()
        for known in (self._entry_of, self._fitting):
            if len(known) > _KNOWN:
                known.clear()
        return entry

    def _price(self, entry: _Entry[Need]) -> None:
        costs = [self.space.cost(shape, entry.need) for shape in (*self.ready, *self.pending)]
        own = self.space.cost(self.space.tightest(entry.need), entry.need)
        entry.cost = min(costs, default=own)
        if entry.cost == inf:  # the union of those that did fit: it may need more than each of them
            entry.cost = own
        entry.waste = max(0.0, entry.cost - own)

    def add(self, shape: Shape, pending: bool = False) -> None:
        """Add the shape of a program; `pending`: it is being compiled."""
        self.pending = [s for s in self.pending if s != shape]
        if shape in self.ready:
            return
        (self.pending if pending else self.ready).append(shape)
        self._price_all()

    def reject(self, shape: Shape) -> None:
        """Take a pending shape back, which turned out to have no program; it is not wanted again."""
        self.pending = [s for s in self.pending if s != shape]
        self._rejected.add(shape)
        self._price_all()

    def _price_all(self) -> None:
        self._fitting.clear()
        self._waste = self._compare_at = 0.0
        for entry in self._entries.values():
            self._price(entry)
            self._waste += entry.number * entry.waste

    def wanted(self) -> Shape | None:
        """The shape whose program is worth its compilation by now; None if there is none, or one is pending."""
        if self.pending or self._waste <= self._compare_at:
            return None
        rate = self.prices.seconds_per_work
        if not rate:
            return None
        enough = self.prices.compilation_seconds / rate
        if self._waste < enough:
            return None
        savings = {shape: self.savings(shape) for shape in self._candidates()}
        best = max(savings, key=lambda shape: savings[shape], default=None)
        if best is not None and savings[best] >= enough:
            return best
        # Savings grow at most as fast as the waste.
        most = 0.0 if best is None else savings[best]
        self._compare_at = self._waste + max(enough - most, _PATIENCE * enough)
        return None

    def _candidates(self) -> list[Shape]:
        return [s for s in dict.fromkeys(self.space.candidates(self.seen)) if s not in self._rejected]

    def savings(self, shape: Shape) -> float:
        """What a program of this shape would have saved so far."""
        return sum(
            entry.number * max(0.0, entry.cost - self.space.cost(shape, entry.need))
            for entry in self._entries.values()
        )


__all__ = ["Prices", "ShapePolicy", "ShapeSpace"]
