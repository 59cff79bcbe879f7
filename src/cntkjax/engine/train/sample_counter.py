"""Number of samples of a minibatch, on the host, so that learning rate schedules need not wait for the device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property

from ...graph.variable import Edge, producer
from ..lower.carry import Memory
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..run.minibatch import Feeds, PackedMinibatch
from ..run.staged_execution import evaluate


class SampleCounter:
    """Counts the samples of a criterion, or, where that has no dynamic axes, of what it is reduced from.

    `counted`: counts those of this variable instead; one without dynamic axes is one sample.
    `source`: the variable whose samples are counted. `unread`: the one in its place where nothing that the criterion is
    computed from has dynamic axes, but an operand of a block that does not depend on it: its samples count, if the
    `unread_arguments` are fed.
    """

    def __init__(self, criterion: Edge, plan: Plan, memory: Memory, counted: Edge | None = None) -> None:
        source, self.unread = (counted, None) if counted is not None else _sources(criterion, set(plan.arguments))
        self.source = resolve(source)
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


def _sources(criterion: Edge, fed: set[Edge]) -> tuple[Edge, Edge | None]:
    """The `source` and `unread` of a criterion; see `SampleCounter`."""
    unread: Edge | None = None
    for variable in with_dynamic_axes(criterion):
        if variable is criterion or fed.issuperset(Plan([variable]).arguments):
            return variable, None
        unread = variable if unread is None else unread
    return criterion, unread


def with_dynamic_axes(criterion: Edge) -> Iterator[Edge]:
    """The criterion and the variables below it, as far as they have dynamic axes, the nearest first.

    As in CNTK, first operands come first, and a block is computed from its operands, whatever is inside.
    """
    pending, seen = [criterion], set[Edge]()
    while pending:
        variable = pending.pop()
        if variable in seen:
            continue
        seen.add(variable)
        if variable.dynamic_axes:
            yield variable
        if (root := producer(variable)) is not None:
            pending.extend(reversed(root.node_inputs))


__all__ = ["SampleCounter", "with_dynamic_axes"]
