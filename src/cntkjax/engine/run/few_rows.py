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
# Beyond one row of so many weights, or so many multiplications, OpenBLAS uses several threads. Where other programs
# keep the machine busy, these wait for each other, and a product of eight rows takes 50 ms instead of 0.3.
_MOST_WEIGHTS, _MOST_MULTIPLICATIONS = 1 << 19, 1 << 18

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
    places = {v: i for i, v in enumerate([*plan.arguments, *(node.node_outputs[0] for node in plan.nodes)])}
    steps = [_step(node, values, places, rows) for node in plan.nodes]
    if None in steps or len(set(plan.outputs)) < len(plan.outputs):
        return None
    outputs = [places[v] for v in plan.outputs]

    def call(array: Samples) -> list[Samples]:
        computed = [array]
        with np.errstate(all="ignore"):
            for step in steps:
                computed.append(step(computed))  # type: ignore[misc]
        return [computed[i] for i in outputs]

    return call


_Step: TypeAlias = Callable[[list[Samples]], Samples]


def _step(node: Node, values: dict[Edge, Samples], places: dict[Edge, int], rows: int) -> _Step | None:
    """The computation of a node from what was computed before it; None if it is none of a dense layer."""
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.dtype != node.node_outputs[0].dtype or (v not in values and v not in places) for v in operands):
        return None
    if node.primitive.name == "Times":
        return _product(node, values.get(operands[1]), places.get(operands[0]), rows)
    compute = _OPERATIONS.get(node.primitive.name) or (
        _OF_VECTORS.get(node.primitive.name) if len(node.node_outputs[0].shape) == 1 else None
    )
    if compute is None or not all(_fits(v, node.node_outputs[0], values) for v in operands):
        return None
    takes: list[Any] = [values.get(v, places.get(v)) for v in operands]
    return lambda computed: compute(*(computed[a] if type(a) is int else a for a in takes))


def _product(node: Node, weight: Samples | None, place: int | None, rows: int) -> _Step | None:
    """Of samples with all their axes contracted and a weight."""
    rank = node.node_attributes["outputRank"]
    if weight is None or place is None or node.node_inputs[0].shape != weight.shape[:-rank]:
        return None
    if weight.size > _MOST_WEIGHTS or (rows > 1 and rows * weight.size > _MOST_MULTIPLICATIONS):
        return None
    matrix = np.ascontiguousarray(weight).reshape(-1, int(np.prod(weight.shape[-rank:])))
    shape = weight.shape[-rank:]

    def multiply(computed: list[Samples]) -> Samples:
        samples = computed[place]
        return np.dot(samples.reshape(-1, len(matrix)), matrix).reshape(len(samples), *shape)

    return multiply


def _fits(operand: Edge, output: Edge, values: dict[Edge, Samples]) -> bool:
    """True if NumPy broadcasts an operand as CNTK does: the axis of the batch must not meet another one."""
    rank, most = len(operand.shape), len(output.shape)
    return rank <= most if operand in values else rank == most


def _relu(x: Samples) -> Samples:
    return np.maximum(x, x.dtype.type(0))


def _sigmoid(x: Samples) -> Samples:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


def _softmax(x: Samples) -> Samples:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _log_softmax(x: Samples) -> Samples:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


_OPERATIONS: dict[str, Callable[..., Samples]] = {
    "Plus": np.add, "Minus": np.subtract, "ElementTimes": np.multiply, "Negate": np.negative, "Abs": np.abs,
    "Exp": np.exp, "Tanh": np.tanh, "ReLU": _relu, "StableSigmoid": _sigmoid, "Dropout": np.copy,
}
_OF_VECTORS: dict[str, Callable[..., Samples]] = {"Softmax": _softmax, "LogSoftmax": _log_softmax}

__all__ = ["MOST_ROWS", "few_rows"]
