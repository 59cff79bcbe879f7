"""Drawings of graphs: which nodes and edges they show, and their source text for Graphviz."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..graph.axis import UNKNOWN_AXES, axes_text
from ..graph.function import Node, nodes
from ..graph.variable import Edge, Leaf, kind_of, value_of
from ..graph.walk import source_of

_SYMBOLS = {"Plus": "+", "Minus": "-", "ElementTimes": "*", "Times": "@"}
_MAX_SHOWN_ELEMENTS = 3  # a constant with fewer elements is shown by its value

# Graphviz attributes of each kind of node, with the sizes that CNTK uses.
_NODE_STYLES = {
    "symbol": "shape=ellipse, fixedsize=true, fontsize=20, height=0.4, width=0.4, penwidth=4",
    "operation": "shape=box, height=0.6, width=0.6, penwidth=4",
    "block": "height=1, width=1.3, penwidth=4",
    "leaf": "shape=box, height=0.6, width=1",
    "number": "shape=box, color=white, fillcolor=white, height=0.3, width=0.4",
    "data": "shape=egg, height=1, width=1.3, penwidth=4",
}


@dataclass
class Drawing:
    """Nodes by uid, operands first, as (label, kind), and edges (source, target, label).

    Kinds are the keys of ``_NODE_STYLES``.
    """

    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def draw(root: Node) -> Drawing:
    """Draw operations, their operands, and the outputs; blocks are single nodes."""
    drawing = Drawing()
    for node in nodes([root.root_function]):
        for operand in operands(node):
            source = source_of(operand)
            if isinstance(source, Edge):
                drawing.nodes[source.uid] = _leaf_label(source)
            drawing.edges.append((source.uid, node.uid, f"{operand.name or operand.uid}\n{_axes_and_shape(operand)}"))
        drawing.nodes[node.uid] = _node_label(node)
    for output in root.outputs:
        uid = f"{output.uid}.output"
        drawing.nodes[uid] = (f"{output.name}\n{_axes_and_shape(output)}", "data")
        drawing.edges.append((root.root_function.uid, uid, _axes_and_shape(output)))
    return drawing


def operands(node: Node) -> list[Edge]:
    """The operands of a node that are shown; as in CNTK, without the constants of a block."""
    return [v for v in node.node_inputs if not (node.is_block and v.is_constant)]


def _axes_and_shape(variable: Edge) -> str:
    axes = variable.dynamic_axes
    text = axes_text(axes).replace(" ", "") if axes and axes != UNKNOWN_AXES else ""
    return f"{text}{variable.shape}"


def _node_label(node: Node) -> tuple[str, str]:
    if node.op_name in _SYMBOLS:
        return _SYMBOLS[node.op_name], "symbol"
    return (f"{node.op_name}\n{node.name}" if node.name else node.op_name), "block" if node.is_block else "operation"


def _leaf_label(leaf: Edge) -> tuple[str, str]:
    if not isinstance(leaf, Leaf):
        return f"{kind_of(leaf).name}\n{leaf.name}\n{_axes_and_shape(leaf)}".replace("\n\n", "\n"), "data"
    if leaf.is_constant and not leaf.has_inferred and np.prod(leaf.shape) < _MAX_SHOWN_ELEMENTS:
        return str(np.asarray(value_of(leaf))), "number"
    return f"{leaf.name or kind_of(leaf).name}\n{leaf.shape}", "leaf"


def dot_source(drawing: Drawing) -> str:
    """The drawing in Graphviz's DOT language."""
    lines = [
        "digraph network_graph {", "rankdir=TB;",
        "node [fillcolor=lightgray, fontsize=12, shape=rectangle, style=filled];", "edge [fontsize=10];",
    ]
    lines += [
        f"{_quoted(uid)} [label={_quoted(text)}, {_NODE_STYLES[kind]}];" for uid, (text, kind) in drawing.nodes.items()
    ]
    lines += [f"{_quoted(a)} -> {_quoted(b)} [label={_quoted(text)}];" for a, b, text in drawing.edges]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


__all__ = ["Drawing", "dot_source", "draw", "operands"]
