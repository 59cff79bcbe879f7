"""What nodes compute, apart from the values: equal structures mean equal computations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from ...graph.axis import Axis
from ...graph.function import CUSTOM, Node
from ...graph.variable import Edge
from .parts import Loop, resolve

Describe = Callable[[Edge], Hashable]
# A program takes random keys as arguments, and axes are distinguished by their place in the graph, not by name.
_NOT_STRUCTURE = ("rngSeed", "rngOffset", "newDynamicAxes", CUSTOM)


def describing() -> Describe:
    """Describe variables: shape, type and axes, where sequence axes are numbered in the order in which they appear."""
    axes: dict[Axis, int] = {}

    def describe(v: Edge) -> Hashable:
        numbered = tuple(axes.setdefault(a, len(axes)) if a.is_sequence_axis else a.name for a in v.dynamic_axes)
        return v.shape, v.dtype, numbered, v.is_sparse

    return describe


def node_structure(
    node: Node, number: Mapping[Edge, Hashable], describe: Describe
) -> tuple[Hashable, ...]:
    """What a node computes from its operands, which are `number`ed."""
    return (
        node.primitive.name,
        _frozen({k: v for k, v in node.node_attributes.items() if k not in _NOT_STRUCTURE}),
        node.primitive.cache_key(node),
        tuple(number[resolve(i)] for i in node.node_inputs),
        tuple(describe(v) for v in node.node_outputs),
    )


def loop_structure(loop: Loop) -> Hashable:
    """What a loop computes from the values outside of it, whether it runs from the first step or from the last."""
    nodes = (*loop.delays, *loop.nodes)
    number: dict[Edge, Hashable] = {v: (i, k) for i, n in enumerate(nodes) for k, v in enumerate(n.node_outputs)}
    outside = dict.fromkeys(v for n in nodes for v in map(resolve, n.node_inputs) if v not in number)
    number |= {v: i for i, v in enumerate(outside)}
    describe = describing()
    delays, steps = [
        tuple(node_structure(n, number, describe) for n in part) for part in (loop.delays, loop.nodes)
    ]
    return (
        loop.axis, tuple(delay[1:] for delay in delays), steps,
        tuple((describe(v), v.is_constant) for v in outside), tuple(number[v] for v in loop.outputs),
    )


def _frozen(value: Any) -> Hashable:
    """A hashable copy of an attribute's value."""
    if isinstance(value, dict):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value


__all__ = ["describing", "loop_structure", "node_structure"]
