"""Number of samples of a minibatch, on the host, so that learning rate schedules need not wait for the device."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

from ...graph.variable import Edge, producer
from ..lower.carry import Memory
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..run.minibatch import Feeds, PackedMinibatch
from ..run.staged_execution import evaluate


class SampleCounter:
    """Counts the samples of a criterion, or, where that has no dynamic axes, of what it is reduced from.

    `source`: the variable whose samples are counted.
    """

    def __init__(self, criterion: Edge, plan: Plan, memory: Memory) -> None:
        self.source = resolve(_nearest_with_dynamic_axes(criterion, set(plan.arguments)))
        self._plan, self._memory = plan, memory
        self._counts: dict[Hashable, int] = {}  # by the signature of minibatches

    def count(self, minibatch: PackedMinibatch, feeds: Feeds) -> int:
        """The number of samples, from what was fed; where only a program knows it, that is run and waited for."""
        samples = minibatch.samples(self.source.dynamic_axes)
        if self._plan.makes_batch and self.source.dynamic_axes:
            samples = self._counts.get(minibatch.signature)  # shapes decide, and the signature has all of them
        if samples is None:  # sequences or a batch that the program makes of others
            needed = {v: feeds[v] for v in self._plan.arguments}
            (result,) = evaluate([self.earliest_source], needed, memory=self._memory.copy())
            samples = result.samples
            if result.layout is None:
                self._counts[minibatch.signature] = samples
        return samples

    @cached_property
    def earliest_source(self) -> Edge:
        """Of the variables with as many samples as `source`, the one that is computed first."""
        if self.source.sequence_axis is None:
            return self.source
        axes = self.source.dynamic_axes
        candidates = (v for n in self._plan.nodes for v in n.node_outputs if v.dynamic_axes == axes)
        return next(candidates, self.source)


def _nearest_with_dynamic_axes(criterion: Edge, fed: set[Edge]) -> Edge:
    """The criterion, or the nearest variable below it that has dynamic axes and is computed from what is fed.

    As in CNTK, first operands come first, and a block is computed from its operands, whatever is inside.
    """
    pending, seen = [criterion], set()
    while pending:
        variable = pending.pop()
        if variable.dynamic_axes and (variable is criterion or fed.issuperset(Plan([variable]).arguments)):
            return variable
        root = producer(variable)
        if root is not None and variable not in seen:
            seen.add(variable)
            pending.extend(reversed(root.node_inputs))
    return criterion


__all__ = ["SampleCounter"]
