"""Rewrite rules: a block, or a node and what its operands come from, computed as one fused node.

CNTK composes some operations of others, and model files hold the compositions. Where a composition is faster as one
operation, a rule for blocks of its name returns that operation, provided that the graph inside still is the
composition: a block that somebody edited is opened like any other. Rules for nodes look at what computes the operands.
The graph itself does not change: a node inside a rewritten block can still be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...graph.build import edits
from ...graph.function import Node
from ...graph.public import classes
from ...graph.variable import Edge, VariableKind, producer, set_type


class Rewrite(NamedTuple):
    """The node that computes the same as a matched block or node."""

    primitive: Any
    operands: list[Edge]
    attributes: dict[str, Any]


Rule = Callable[[Node], Rewrite | None]  # None: the rule does not apply
BLOCK_RULES: dict[str, Rule] = {}  # by the name of the block
NODE_RULES: dict[str, Rule] = {}  # by the name of the primitive


def rewritten(function: Node) -> Node:
    """The node that computes the outputs of a block or node.

    That is the replacement if a rule applies; otherwise, of a block, the root of the graph inside; of a node, itself.
    """
    inner = function.block_composite
    root = function if inner is None else inner.root_function
    rule = _rule(function)
    if rule is None:
        return root
    checked_at, node = function.rewrite_cache or (-1, None)
    if checked_at != edits():
        _rewrite_chain_below(function)
        function.rewrite_cache = edits(), None  # what a rule meets that follows a cycle without a delay
        node = _replacement(function, root, rule(function), node)
        function.rewrite_cache = edits(), node
    return node or root


def _rule(function: Node) -> Rule | None:
    if function.block_composite is None:
        return NODE_RULES.get(function.primitive.name)
    return BLOCK_RULES.get(function.block_name)


def _rewrite_chain_below(function: Node) -> None:
    """Rewrite a chain of nodes with rules from its begin: rules ask what computes operands, and would recurse."""
    chain: dict[Node, None] = {}
    operand: Node | None = function
    while operand is not None and operand not in chain:
        chain[operand] = None
        owners = [owner for v in operand.node_inputs if (owner := producer(v)) is not None]
        operand = next((o for o in owners if _rule(o) and (o.rewrite_cache or (-1,))[0] != edits()), None)
    for node in [*chain][:0:-1]:
        rewritten(node)


def _replacement(
    function: Node, root: Node, rewrite: Rewrite | None, previous: Node | None
) -> Node | None:
    """The node that a rewrite describes: the previous one if that is unchanged, since plans hold it."""
    if rewrite is None:
        return None
    while root.block_composite is not None:
        root = rewritten(root)
    node = previous
    if node is None or (node.primitive, node.node_inputs, node.node_attributes) != rewrite:
        node = classes.function(
            primitive=rewrite.primitive, inputs=rewrite.operands, attributes=rewrite.attributes,
            name=function.name, uid=root.uid,
        )
        node.node_outputs = [
            classes.variable(VariableKind.Output, v.shape, v.dtype, v.dynamic_axes, name=v.name, uid=v.uid, owner=node)
            for v in root.node_outputs
        ]
    for output, v in zip(node.node_outputs, root.node_outputs, strict=True):
        set_type(output, v.shape, v.dtype, v.dynamic_axes, v.is_sparse, v.needs_gradient)
    return node
