"""Dense layers for a few samples, computed by NumPy.

XLA:CPU multiplies a row by a matrix in one thread, and a call of its executable takes longer than a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..._typing import AnyArray
from ...graph.function import Node
from ...graph.variable import Edge
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..xla.platform import platform

MOST_ROWS = 64  # up to here NumPy took less time than XLA (docs/performance.md)
# Beyond one row of so many weights, or so many multiplications, OpenBLAS uses several threads. Where other programs
# keep the machine busy, these wait for each other, and a product of eight rows takes 50 ms instead of 0.3.
_MOST_WEIGHTS, _MOST_MULTIPLICATIONS = 1 << 19, 1 << 18
# Larger products are sums of smaller ones, which take less time than XLA if these are not too small.
_LEAST_PART, _MOST_ROWS_IN_PARTS = 24, 16

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


def part_of_weight(rows: int, inner: int, outer: int) -> int:
    """How many rows of a weight [inner, outer] one thread of OpenBLAS multiplies at once by so many samples.

    0 if XLA takes less time for the product.
    """
    part = (_MOST_WEIGHTS if rows == 1 else _MOST_MULTIPLICATIONS) // (rows * outer)
    if part >= inner:
        return inner
    is_small = inner * outer <= _MOST_WEIGHTS * (8 if rows == 1 else 2)
    return part if part >= _LEAST_PART and rows <= _MOST_ROWS_IN_PARTS and is_small else 0


def product_in_parts(part: int, samples: AnyArray, weight: AnyArray) -> AnyArray:
    """The product of samples [rows, inner] and a weight [inner, outer], so many rows of the weight at once."""
    result = np.dot(samples[:, :part], weight[:part])
    for i in range(part, len(weight), part):
        result += np.dot(samples[:, i : i + part], weight[i : i + part])
    return result


__all__ = ["MOST_ROWS", "few_rows", "part_of_weight", "product_in_parts"]
