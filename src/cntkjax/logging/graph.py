"""Traverses, searches and draws graphs."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from ..graph.arguments import public
from ..graph.function import Node
from ..graph.variable import Edge
from ..graph.walk import walk
from ._drawing import dot_source, draw, operands
from ._rendering import render

__all__ = ["depth_first_search", "find_all_with_name", "find_by_name", "find_by_uid", "get_node_outputs", "plot"]

Vertex = Node | Edge


class Searchable(Protocol):
    """A function that can be searched by name; variables cannot."""

    def find_all_with_name(self, name: str, depth: int = 0) -> list[Vertex]:
        """List the nodes with this name, in this many nested blocks."""


_FORMATS = (".svg", ".pdf", ".png", ".dot", ".txt")


@public
def depth_first_search(root: Node, visitor: Callable[[Vertex], bool], depth: int = 0) -> list[Vertex]:
    """List the functions, inputs, parameters and constants for which ``visitor`` returns True, each once.

    Args:
        root: where the search starts; a node precedes its operands
        visitor: called with each node
        depth: how many levels of nested blocks are entered; -1: all. Their nodes follow those outside

    >>> import cntkjax as C
    >>> f = C.tanh(C.input_variable(2, name="x") * 3)
    >>> [getattr(node, "op_name", node.name) for node in depth_first_search(f, lambda node: True)]
    ['Tanh', 'ElementTimes', 'x', '']
    """
    return [node for node in walk(root, depth) if visitor(node)]


@public
def find_all_with_name(node: Searchable, node_name: str, depth: int = 0) -> list[Vertex]:
    """List the functions, inputs, parameters and constants with this name.

    Args:
        node: where the search starts
        node_name: the name
        depth: how many levels of nested blocks are entered; -1: all

    Errors: ValueError if the name is no string.

    >>> import cntkjax as C
    >>> find_all_with_name(C.input_variable(2, name="x") * 3, "x")
    [Input('x', [#], [2])]
    """
    if not isinstance(node_name, str):
        raise ValueError(f"node name has to be a string. You gave a {type(node_name)}; pass node.name")
    return node.find_all_with_name(node_name, depth)


@public
def find_by_name(node: Searchable, node_name: str, depth: int = 0) -> Vertex | None:
    """The only function, input, parameter or constant with this name, or None; see ``find_all_with_name``.

    Errors: ValueError if there are several, or the name is no string.

    >>> import cntkjax as C
    >>> find_by_name(C.input_variable(2, name="x") * 3, "x")
    Input('x', [#], [2])
    """
    matches = find_all_with_name(node, node_name, depth)
    if len(matches) > 1:
        raise ValueError(
            f'found multiple functions matching "{node_name}"; find_all_with_name returns all {len(matches)}'
        )
    return matches[0] if matches else None


@public
def find_by_uid(node: Node, node_uid: str, depth: int = 0) -> Vertex | None:
    """The function, input, parameter or constant with this uid, or None.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> find_by_uid(x * 3, x.uid) is x
    True
    """
    return next((match for match in walk(node, depth) if match.uid == node_uid), None)


@public
def get_node_outputs(node: Node, depth: int = 0) -> list[Edge]:
    """List the outputs of all functions, in the order of ``depth_first_search``.

    >>> import cntkjax as C
    >>> [output.shape for output in get_node_outputs(C.input_variable(2) * 3)]
    [(2,)]
    """
    return [output for f in walk(node, depth) if isinstance(f, Node) for output in f.outputs]


@public
def plot(root: Node, filename: str | os.PathLike[str] | None = None) -> str:
    """Describe a graph with a line of text for each operation, operands first; optionally draws it.

    Args:
        root: the function to describe
        filename: where to write a drawing; the extension selects the format: .txt the lines of text, .dot source text
            for Graphviz, .svg, .pdf or .png a picture, rendered with Graphviz if it is installed, else with matplotlib

    Errors: ValueError for another extension; ImportError for a picture if neither renderer is installed.
    Source: the lines are those of CNTK 2.7, which writes no .txt.

    >>> import cntkjax as C
    >>> print(plot(C.tanh(C.input_variable(2) * 3)))
    ElementTimes(Input..., Constant...) -> ElementTimes..._Output_0;
    <BLANKLINE>
    Tanh(ElementTimes..._Output_0) -> Tanh..._Output_0;
    <BLANKLINE>
    """
    lines = [
        f"{node.op_name}({_operand_list(node)}) -> {output.uid};\n"
        for node in walk(root) if isinstance(node, Node) for output in node.outputs
    ]
    text = "\n".join(reversed(lines))
    if filename is not None:
        _write(root, os.fspath(filename), text)
    return text


def _operand_list(node: Node) -> str:
    """The operands shown of a node; as in CNTK a comma remains of constants of a block that come last."""
    shown = operands(node)
    text = ", ".join(v.uid for v in shown)
    return f"{text}, " if shown and node.node_inputs[-1] is not shown[-1] else text


def _write(root: Node, filename: str, text: str) -> None:
    kind = os.path.splitext(filename)[1]
    if kind not in _FORMATS:
        raise ValueError(f"plot: '{filename}' has none of the extensions {', '.join(_FORMATS)}; choose one of them")
    if kind not in (".txt", ".dot"):
        content = render(draw(root), kind[1:])
    else:
        content = (text if kind == ".txt" else dot_source(draw(root))).encode()
    with open(filename, "wb") as file:
        file.write(content)
