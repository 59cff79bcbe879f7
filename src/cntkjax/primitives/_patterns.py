"""Patterns that rewrite rules match: the structure of the compositions that they replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..engine.plan.parts import resolve
from ..graph.function import Node
from ..graph.variable import Edge, Leaf, producer, value_of


@dataclass(frozen=True)
class OperationPattern:
    """Matches the (first) output of an operation with these attributes, others aside, and matching operands."""

    name: str
    operands: tuple[Pattern, ...]
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Bind:
    """Matches what its pattern matches, and binds the variable to a name."""

    name: str
    pattern: OperationPattern


# A string is a name for a variable, the same one wherever it occurs; a number matches a constant of that value.
Pattern: TypeAlias = str | float | OperationPattern | Bind
Bindings: TypeAlias = dict[str, Edge]


def op(name: str, /, *operands: Pattern, **attributes: object) -> OperationPattern:
    """The pattern of an operation."""
    return OperationPattern(name, operands, attributes)


def match_block(block: Node, pattern: Pattern) -> Bindings | None:
    """The variables bound to the names in a pattern; None unless the block, of one argument x, is exactly that."""
    assert block.block_composite is not None
    bindings: Bindings = {}
    arguments = [argument for argument, _ in block.block_map]
    if len(arguments) != 1 or not matches(block.block_composite.root_function.node_outputs[0], pattern, bindings):
        return None
    if bindings["x"] is not resolve(arguments[0]):
        return None
    return bindings | {"x": arguments[0]}


def matches(variable: Edge, pattern: Pattern, bindings: Bindings) -> bool:
    """True if a variable is computed as a pattern says; its names are added to the bindings."""
    variable = resolve(variable)
    if isinstance(pattern, str):
        return bindings.setdefault(pattern, variable) is variable
    if isinstance(pattern, Bind):
        return matches(variable, pattern.name, bindings) and matches(variable, pattern.pattern, bindings)
    if isinstance(pattern, OperationPattern):
        return _matches_op(variable, pattern, bindings)
    if not isinstance(variable, Leaf) or not variable.is_constant:
        return False
    return bool((np.asarray(value_of(variable)) == pattern).all())  # with NumPy, also while a program is traced


def _matches_op(variable: Edge, pattern: OperationPattern, bindings: Bindings) -> bool:
    node = producer(variable)
    if node is None or variable is not node.node_outputs[0]:
        return False
    if node.primitive.name == "Quotient" and pattern.name == "ElementTimes":
        dividend, reciprocal = pattern.operands  # of the composition: a rule has replaced the product by a quotient
        if not isinstance(reciprocal, OperationPattern) or reciprocal.name != "Reciprocal":
            return False
        return _match_all(node.node_inputs, (dividend, *reciprocal.operands), bindings)
    return (
        node.primitive.name == pattern.name
        and all(node.node_attributes.get(k) == v for k, v in pattern.attributes.items())
        and _match_all(node.node_inputs, pattern.operands, bindings)
    )


def _match_all(variables: Sequence[Edge], patterns: Sequence[Pattern], bindings: Bindings) -> bool:
    if len(variables) != len(patterns):
        return False
    return all(matches(v, p, bindings) for v, p in zip(variables, patterns, strict=True))
