"""Dense layers for a few samples, computed by NumPy.

XLA:CPU multiplies a row by a matrix in one thread, and a call of its executable takes longer than a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...graph.function import Node
from ...graph.variable import Edge
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..xla.platform import platform

MOST_ROWS = 64  # up to here NumPy took less time than XLA (docs/performance.md)

Samples: TypeAlias = "np.ndarray[Any, Any]"
Call: TypeAlias = Callable[[Samples], list[Samples]]


def few_rows(plan: Plan, leaves: Sequence[Any], rows: int) -> Call | None:
    """A function that computes the outputs for one array of so many samples.

    None if not all are dense layers, or if NumPy would take longer than XLA. `leaves`: the values of the plan's leaves,
    which have to stay.
    Shapes: it takes [batch, *shape], and returns arrays [batch, *shape of the output] of their own.
    """
    if rows > MOST_ROWS or platform() != "cpu" or len(plan.arguments) != 1 or not plan.is_of_samples:
        return None
    values: dict[Edge, Samples] = {v: np.asarray(a) for v, a in zip(plan.leaves, leaves, strict=True) if a is not None}
    places: dict[Edge, int] = {plan.arguments[0]: 0}
    steps: list[_Step] = []
    with np.errstate(all="ignore"):
        for node in plan.nodes:
            step = _step(node, values, places, rows)
            if step is None:
                return None
            if any(resolve(v) in places for v in node.node_inputs):
                steps.append(step)
                places[node.node_outputs[0]] = len(steps)
            else:
                values[node.node_outputs[0]] = step([])  # of leaves, which stay
    if len(set(plan.outputs)) < len(plan.outputs):
        return None
    outputs = [places[v] for v in plan.outputs]

    def call(array: Samples) -> list[Samples]:
        computed = [array]
        with np.errstate(all="ignore"):
            for step in steps:
                computed.append(step(computed))
        return [computed[i] for i in outputs]

    return call


_Step: TypeAlias = Callable[[list[Samples]], Samples]


def _step(node: Node, values: dict[Edge, Samples], places: dict[Edge, int], rows: int) -> _Step | None:
    """The computation of a node from what was computed before it; None if it is none of a dense layer."""
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.dtype != node.node_outputs[0].dtype or (v not in values and v not in places) for v in operands):
        return None
    compute, weight = node.primitive.by_numpy(node, rows), node.primitive.weight_operand
    if compute is None or (weight is not None and operands[weight] not in values):
        return None
    return _applied(compute, [values.get(v, places.get(v)) for v in operands])


def _applied(compute: Callable[..., Samples], operands: Sequence[Any]) -> _Step:
    """A function that computes with operands, the places of which stand for what is there. Few take least time."""
    match operands:
        case [int(i)]:
            return lambda computed: compute(computed[i])
        case [int(i), int(j)]:
            return lambda computed: compute(computed[i], computed[j])
        case [int(i), b]:
            return lambda computed: compute(computed[i], b)
        case [a, int(j)]:
            return lambda computed: compute(a, computed[j])
    return lambda computed: compute(*(computed[a] if type(a) is int else a for a in operands))


__all__ = ["MOST_ROWS", "few_rows"]
