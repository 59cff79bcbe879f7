"""Blocks and nodes that are computed as another node, because the graph inside, or in front, is known to be the same.

CNTK composes some operations of others, and models are saved as these. Where such a composition is faster as a whole, a
rule tells for blocks of its name which primitive that is, if the graph inside really is the composition: a block that
somebody edited is opened as any other. For primitives, a rule looks at what their operands come from.
The graph stays as it is, and whoever asks for a node inside gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.build import edits
from ...graph.function import Function
from ...graph.public import classes
from ...graph.variable import Variable, VariableKind

# What computes the same as a block: a primitive, its operands and its attributes; None: nothing known.
Rewrite = tuple[Any, list[Variable], dict[str, Any]]
Rule = Callable[[Function], Rewrite | None]
BLOCK_RULES: dict[str, Rule] = {}  # by names of blocks
NODE_RULES: dict[str, Rule] = {}  # by names of primitives


def rewritten(function: Function) -> Function:
    """The node that has the outputs of a block, the root of the graph inside, or of a node, itself.

    Or one that stands for all of it.
    """
    inside = function.block_composite
    root = function if inside is None else inside.root_function
    rule = NODE_RULES.get(function.primitive.name) if inside is None else BLOCK_RULES.get(function.block_name)
    if rule is None:
        return root
    checked, node = function.whole or (-1, None)
    if checked != edits():
        node = _standing_for(function, root, rule(function), node)
        function.whole = edits(), node
    return node or root


def _standing_for(block: Function, root: Function, found: Rewrite | None, before: Function | None) -> Function | None:
    """The node as the rule found it; the same as before if that has not changed, since plans know it."""
    if found is None:
        return None
    primitive, operands, attributes = found
    while root.block_composite is not None:
        root = rewritten(root)
    node = before
    if node is None or (node.primitive, node.node_inputs, node.node_attributes) != found:
        node = classes.function(
            primitive=primitive, inputs=operands, attributes=attributes, name=block._name, uid=root.uid
        )
        node.node_outputs = [
            classes.variable(VariableKind.Output, v.shape, v.dtype, v.dynamic_axes, name=v.name, uid=v.uid, owner=node)
            for v in root.node_outputs
        ]
    for made, v in zip(node.node_outputs, root.node_outputs, strict=True):
        made._become(v.shape, v.dtype, v.dynamic_axes, v.is_sparse, v.needs_gradient)
    return node
