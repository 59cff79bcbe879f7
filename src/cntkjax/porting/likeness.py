"""What corresponds in two graphs that compute the same in the same way; blocks are looked into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..engine.plan.parts import resolve
from ..graph.axis import ALL_STATIC, Axis
from ..graph.function import Node
from ..graph.variable import Edge, Leaf, kind_of, producer, value_of

_SAME = {"Sigmoid": "StableSigmoid"}  # early files have the former, `sigmoid` makes the latter
_PADDING = {"lowerPad", "upperPad"}
_RANDOM = {"rngSeed", "rngOffset"}  # two dropouts are alike


class Unlike(ValueError):
    """Two graphs differ at this variable of the first one."""

    def __init__(self, variable: Edge) -> None:
        super().__init__(f"{variable!r} has no counterpart")
        self.variable = variable


def alike(outputs: Iterable[tuple[Edge, Edge]], known: Mapping[Edge, Edge] | None = None) -> dict[Edge, Edge]:
    """The variables of a graph, each with its counterpart in another one, from pairs of outputs down.

    `known`: variables whose counterparts are given, and not followed. Constants of one element count by their values.
    Errors: Unlike.
    """
    counterparts: dict[Edge, Edge] = {computed(old): computed(new) for old, new in (known or {}).items()}
    waiting = [*outputs]
    while waiting:
        old, new = map(computed, waiting.pop())
        if old not in counterparts:
            counterparts[old] = new
            waiting += _operands(old, new)
        elif counterparts[old] is not new and not _is_number(old, new):
            raise Unlike(old)
    return counterparts


def computed(variable: Edge) -> Edge:
    """The variable that an operation computes, or a leaf: not the output of a block, or one of several combined."""
    while True:
        variable = resolve(variable, _opened)
        owner = producer(variable)
        if owner is None or owner.op_name != "Combine":
            return variable
        variable = owner.node_inputs[owner.node_outputs.index(variable)]


def _opened(node: Node) -> Node:
    return node if node.block_composite is None else node.block_composite.root_function


def _operands(old: Edge, new: Edge) -> Iterable[tuple[Edge, Edge]]:
    one, other = producer(old), producer(new)
    if one is None or other is None:
        if one is not other or not _same_leaves(old, new):
            raise Unlike(old)
        return ()
    if _operation(one) != _operation(other) or len(one.node_inputs) != len(other.node_inputs) or (
        one.node_outputs.index(old) != other.node_outputs.index(new) or _attributes(one) != _attributes(other)
    ):
        raise Unlike(old)
    return zip(one.node_inputs, other.node_inputs, strict=True)


def _operation(node: Node) -> str:
    return _SAME.get(node.op_name, node.op_name)


def _same_leaves(old: Edge, new: Edge) -> bool:
    if kind_of(old) != kind_of(new):
        return False
    return _is_number(old, new) or all(d in (e, -1) for d, e in zip(new.shape, old.shape, strict=False))


def _is_number(old: Edge, new: Edge) -> bool:
    leaves = [v for v in (old, new) if isinstance(v, Leaf) and v.is_constant and v.shape in ((), (1,))]
    return len(leaves) == 2 and bool(np.ravel(value_of(leaves[0]))[0] == np.ravel(value_of(leaves[1]))[0])


def _attributes(node: Node) -> dict[str, Any]:
    attributes = node.node_attributes
    declared = node.primitive.attributes.items()
    plain = {k: _plain(attributes.get(k, v.default)) for k, v in declared if k not in _RANDOM}
    for name in _PADDING & {*plain}:  # one for all axes, or one for each
        plain[name] = plain[name] if np.any(plain[name]) else None
    if plain.get("sliceStrides", 1) is None:
        plain["sliceStrides"] = 1
    if plain.get("axisVec") is None and "axisVec" in plain:  # one axis, or a list of one
        plain["axisVec"] = (plain.get("axis"),)
    return {k: v for k, v in plain.items() if k != "axis" or "axisVec" not in plain}


def _plain(value: Any) -> Any:
    """An attribute's value for comparison: names of dynamic axes are chosen anew with each graph."""
    if value == ALL_STATIC:  # as without an axis
        return None
    if isinstance(value, Axis):
        return value.static_axis_index() if value.is_static_axis else value.is_sequence_axis
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


__all__ = ["Unlike", "alike"]
