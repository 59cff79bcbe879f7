"""What a picture of a graph shows, and its text for Graphviz."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..graph.axis import UNKNOWN_AXES, axes_text
from ..graph.function import Function, nodes
from ..graph.variable import Leaf, Variable
from ..graph.walk import source_of

_SYMBOLS = {"Plus": "+", "Minus": "-", "ElementTimes": "*", "Times": "@"}
_FIRST_DIGITS = 3  # a constant of so few numbers is shown itself

# How kinds of nodes look in Graphviz, in CNTK's own sizes.
_LOOKS = {
    "symbol": "shape=ellipse, fixedsize=true, fontsize=20, height=0.4, width=0.4, penwidth=4",
    "operation": "shape=box, height=0.6, width=0.6, penwidth=4",
    "block": "height=1, width=1.3, penwidth=4",
    "leaf": "shape=box, height=0.6, width=1",
    "number": "shape=box, color=white, fillcolor=white, height=0.3, width=0.4",
    "data": "shape=egg, height=1, width=1.3, penwidth=4",
}


@dataclass
class Drawing:
    """Nodes by uid, operands first, as (text, kind); and edges (from, to, text). Kinds are the keys of ``_LOOKS``."""

    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def drawing(root: Function) -> Drawing:
    """Blocks closed: operations, what they compute from, and the outputs."""
    made = Drawing()
    for node in nodes([root.root_function]):
        for operand in operands(node):
            source = source_of(operand)
            if isinstance(source, Variable):
                made.nodes[source.uid] = _of_leaf(source)
            made.edges.append((source.uid, node.uid, f"{operand.name or operand.uid}\n{_form(operand)}"))
        made.nodes[node.uid] = _of_node(node)
    for output in root.outputs:
        end = f"{output.uid}.output"
        made.nodes[end] = (f"{output.name}\n{_form(output)}", "data")
        made.edges.append((root.root_function.uid, end, _form(output)))
    return made


def operands(node: Function) -> list[Variable]:
    """What is shown that a node computes from; as in CNTK not the constants in a block."""
    return [v for v in node.node_inputs if not (node.is_block and v.is_constant)]


def _form(variable: Variable) -> str:
    axes = variable.dynamic_axes
    text = axes_text(axes).replace(" ", "") if axes and axes != UNKNOWN_AXES else ""
    return f"{text}{variable.shape}"


def _of_node(node: Function) -> tuple[str, str]:
    if node.op_name in _SYMBOLS:
        return _SYMBOLS[node.op_name], "symbol"
    return (f"{node.op_name}\n{node._name}" if node._name else node.op_name), "block" if node.is_block else "operation"


def _of_leaf(leaf: Variable) -> tuple[str, str]:
    if not isinstance(leaf, Leaf):
        return f"{leaf._kind.name}\n{leaf.name}\n{_form(leaf)}".replace("\n\n", "\n"), "data"
    if leaf.is_constant and not leaf.has_inferred and np.prod(leaf.shape) < _FIRST_DIGITS:
        return str(np.asarray(leaf._value)), "number"
    return f"{leaf.name or leaf._kind.name}\n{leaf.shape}", "leaf"


def dot_text(drawn: Drawing) -> str:
    """The drawing in Graphviz's language."""
    lines = [
        "digraph network_graph {", "rankdir=TB;",
        "node [fillcolor=lightgray, fontsize=12, shape=rectangle, style=filled];", "edge [fontsize=10];",
    ]
    lines += [f"{_quoted(uid)} [label={_quoted(text)}, {_LOOKS[kind]}];" for uid, (text, kind) in drawn.nodes.items()]
    lines += [f"{_quoted(a)} -> {_quoted(b)} [label={_quoted(text)}];" for a, b, text in drawn.edges]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


__all__ = ["Drawing", "dot_text", "drawing", "operands"]
