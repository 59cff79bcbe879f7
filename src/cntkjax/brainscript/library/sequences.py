"""Delays, and operations on sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nodes import NetNode
from .table import direct, operation

operation("Where", sequences=True)(direct("sequence.where"))
operation("PackedIndex", sequences=True)(direct("alias", 1))
operation("BroadcastSequenceAs", sequences=True)(direct("sequence.broadcast_as", 1, 0))
operation("ReconcileDynamicAxis")(direct("reconcile_dynamic_axes"))
operation("ReduceSequence", sequences=True)(direct("sequence.reduce_sum"))
operation("LabelsToGraph", sequences=True)(direct("labels_to_graph"))


def _delay(function: str) -> Callable[..., Any]:
    """What gives the value some steps before or later, and at the end of the sequence an initial one."""

    def build(
        C: Any, x: Any, *initial: Any, timeStep: float = 1.0, defaultHiddenActivation: float = 0.1, name: str,
    ) -> Any:
        start = initial[0] if initial else C.Constant(float(defaultHiddenActivation))
        return getattr(C.sequence, function)(x, start, int(timeStep), name=name)

    return build


operation("PastValue", delays=True)(_delay("past_value"))
operation("FutureValue", delays=True)(_delay("future_value"))


@operation("GatherPacked", sequences=True, operands=lambda inputs: [_condition(inputs[0]), inputs[1]])
def gather(C: Any, condition: Any, x: Any, *, at: str = "", name: str) -> Any:
    """The steps where a condition holds; `at`: only the first or last one."""
    if at:
        return (C.sequence.first if at == "first" else C.sequence.last)(x, name=name)
    return C.sequence.gather(x, condition, name=name)


@operation("ScatterPacked", sequences=True, operands=lambda inputs: [inputs[0], inputs[2]])
def scatter(C: Any, condition: Any, x: Any, *, name: str) -> Any:
    """Steps placed where a condition holds, zeros elsewhere; a value without steps has one."""
    if not any(axis.is_sequence_axis for axis in x.dynamic_axes):
        return C.element_times(C.sequence.broadcast_as(x, condition), condition, name=name)
    return C.sequence.scatter(x, condition, name=name)


def _condition(index: NetNode) -> NetNode:
    """The condition of which indices (PackedIndex of Where) are made."""
    return index.operands()[1].operands()[0] if index.operation == "PackedIndex" else index


@operation("ForwardBackward", sequences=True)
def forward_backward(
    C: Any, graph: Any, features: Any, *, blankTokenId: float, delayConstraint: float = -1.0, name: str,
) -> Any:
    """The connectionist temporal classification loss."""
    return C.forward_backward(graph, features, int(blankTokenId), int(delayConstraint), name=name)
