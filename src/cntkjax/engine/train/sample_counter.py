"""Number of samples of a minibatch, on the host, so that learning rate schedules need not wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property

from ...graph.variable import Edge, producer
from ..lower.carry import Memory
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..run.minibatch import Feeds, PackedMinibatch
from ..run.staged_execution import evaluate


class SampleCounter:
    """Counts the samples of a criterion, or, where that has no dynamic axes, of what it is reduced from.

    `source`: the variable whose samples are counted. `unread`: the one in its place where nothing that the criterion is
    computed from has dynamic axes, but an operand of a block that does not depend on it: its samples count, if the
    `unread_arguments` are fed.
    """

    def __init__(self, criterion: Edge, plan: Plan, memory: Memory) -> None:
        fed = set(plan.arguments)
        nearest = _nearest_with_dynamic_axes(criterion, lambda v: fed.issuperset(Plan([v]).arguments))
        self.source = resolve(nearest or criterion)
        self.unread = _nearest_with_dynamic_axes(criterion, lambda v: True) if nearest is None else None
        self.unread_arguments = Plan([self.unread]).arguments if self.unread is not None else []
        self._plan, self._memory = plan, memory
        self._counts: dict[Hashable, int] = {}  # by the signature of minibatches

    def count(self, minibatch: PackedMinibatch, feeds: Feeds) -> int:
        """The number of samples, from what was fed; where only a program knows it, that is run and waited for."""
        if self.unread is not None and feeds.keys() >= set(self.unread_arguments):
            (result,) = evaluate([self.unread], {v: feeds[v] for v in self.unread_arguments})
            return result.samples
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


def _nearest_with_dynamic_axes(criterion: Edge, counts: Callable[[Edge], bool]) -> Edge | None:
    """The criterion, or the nearest variable below it that has dynamic axes and counts; None if there is none.

    As in CNTK, first operands come first, and a block is computed from its operands, whatever is inside.
    """
    pending, seen = [criterion], set()
    while pending:
        variable = pending.pop()
        if variable.dynamic_axes and (variable is criterion or counts(variable)):
            return variable
        root = producer(variable)
        if root is not None and variable not in seen:
            seen.add(variable)
            pending.extend(reversed(root.node_inputs))
    return None


__all__ = ["SampleCounter"]
