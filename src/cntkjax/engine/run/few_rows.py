"""Dense layers for a few samples, computed by NumPy.

XLA:CPU multiplies a row by a matrix in one thread, and a call of its executable takes longer than a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from operator import is_
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
_Step: TypeAlias = Callable[[list[Samples]], Samples]  # from what was computed before it


class FewRows:
    """The outputs of a plan for some samples, with any values of its leaves.

    First come the values of the leaves, then what follows from them alone, the samples, and what follows from these:
    `fixed` and `steps` take the list of all before them. `outputs` are places in it.
    """

    def __init__(self, fixed: Sequence[_Step], steps: Sequence[_Step], outputs: Sequence[int]) -> None:
        self._fixed, self._steps, self._outputs = fixed, steps, outputs
        self._latest: tuple[Sequence[Any], Call] | None = None

    def latest(self, leaves: Sequence[Any]) -> Call:
        """The function of the samples with these values of the leaves; it is kept until others come."""
        latest = self._latest
        if latest is None or not all(map(is_, latest[0], leaves)):
            latest = self._latest = leaves, self.bound(leaves)
        return latest[1]

    def bound(self, leaves: Sequence[Any]) -> Call:
        """The function of the samples for values of the leaves that stay.

        Shapes: it takes [batch, *shape], and returns arrays [batch, *shape of the output] of their own.
        """
        constants = [*map(np.asarray, leaves)]
        with np.errstate(all="ignore"):
            for step in self._fixed:
                constants.append(step(constants))
        steps, outputs = self._steps, self._outputs

        def call(array: Samples) -> list[Samples]:
            computed = [*constants, array]
            with np.errstate(all="ignore"):
                for step in steps:
                    computed.append(step(computed))
            return [computed[i] for i in outputs]

        return call


def few_rows(plan: Plan, rows: int) -> FewRows | None:
    """The computation for so many samples; None if not all are dense layers, or NumPy would take longer than XLA."""
    if rows > MOST_ROWS or platform() != "cpu" or len(plan.arguments) != 1 or not plan.is_of_samples:
        return None
    if len(set(plan.outputs)) < len(plan.outputs):
        return None
    constants: set[Edge] = {*plan.leaves}
    fixed, varying = [], []
    for node in plan.nodes:
        if all(resolve(v) in constants for v in node.node_inputs):
            fixed.append(node)
            constants.update(node.node_outputs)
        else:
            varying.append(node)
    order = [*plan.leaves, *map(_output, fixed), plan.arguments[0], *map(_output, varying)]
    places = {v: i for i, v in enumerate(order)}
    steps = [step for node in (*fixed, *varying) if (step := _step(node, rows, places, constants)) is not None]
    if len(steps) < len(plan.nodes):
        return None
    return FewRows(steps[: len(fixed)], steps[len(fixed) :], [places[v] for v in plan.outputs])


def _output(node: Node) -> Edge:
    return node.node_outputs[0]


def _step(node: Node, rows: int, places: Mapping[Edge, int], constants: Set[Edge]) -> _Step | None:
    """The computation of a node from what was computed before it; None if it is none of a dense layer."""
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.dtype != node.node_outputs[0].dtype or v not in places for v in operands):
        return None
    compute, weight = node.primitive.by_numpy(node, rows), node.primitive.weight_operand
    if compute is None or (weight is not None and operands[weight] not in constants):
        return None
    return _applied(compute, [places[v] for v in operands])


def _applied(compute: Callable[..., Samples], places: Sequence[int]) -> _Step:
    """A function that computes with the operands in these places. Few instructions take least time."""
    match places:
        case [i]:
            return lambda computed: compute(computed[i])
        case [i, j]:
            return lambda computed: compute(computed[i], computed[j])
    return lambda computed: compute(*(computed[i] for i in places))


__all__ = ["MOST_ROWS", "FewRows", "few_rows"]
