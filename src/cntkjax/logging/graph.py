"""Walking through a graph, finding nodes in it, and drawing it."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..graph.function import Function
from ..graph.variable import Variable as GraphVariable
from ..graph.walk import walk
from ._drawing import dot_text, drawing, operands
from ._picture import picture

__all__ = ["depth_first_search", "find_all_with_name", "find_by_name", "find_by_uid", "get_node_outputs", "plot"]

_FORMATS = (".svg", ".pdf", ".png", ".dot", ".txt")


def depth_first_search(root: Function, visitor: Callable[[Any], bool], depth: int = 0) -> list[Any]:
    """Functions, inputs, parameters and constants below ``root`` for which ``visitor`` is true, each once.

    A node comes before its operands, and those in order. Blocks are entered ``depth`` levels deep (-1: all); what is
    inside comes after everything around it.

    Example:
        >>> import cntkjax as C
        >>> f = C.tanh(C.input_variable(2, name="x") * 3)
        >>> [getattr(node, "op_name", node.name) for node in depth_first_search(f, lambda node: True)]
        ['Tanh', 'ElementTimes', 'x', '']
    """
    return [node for node in walk(root, depth) if visitor(node)]


def find_all_with_name(node: Any, node_name: str, depth: int = 0) -> list[Any]:
    """All functions, inputs, parameters and constants of this name, ``depth`` blocks deep (-1: all).

    Errors: ValueError if the name is no text.

    Example:
        >>> import cntkjax as C
        >>> find_all_with_name(C.input_variable(2, name="x") * 3, "x")
        [Input('x', [#], [2])]
    """
    if not isinstance(node_name, str):
        raise ValueError(f"node name has to be a string. You gave a {type(node_name)}")
    return node.find_all_with_name(node_name, depth)


def find_by_name(node: Any, node_name: str, depth: int = 0) -> Any:
    """The only one of this name, or None; see ``find_all_with_name``.

    Errors: ValueError if there are several, or the name is no text.

    Example:
        >>> import cntkjax as C
        >>> find_by_name(C.input_variable(2, name="x") * 3, "x")
        Input('x', [#], [2])
    """
    found = find_all_with_name(node, node_name, depth)
    if len(found) > 1:
        raise ValueError(f'found multiple functions matching "{node_name}"; find_all_with_name gives all {len(found)}')
    return found[0] if found else None


def find_by_uid(node: Function, node_uid: str, depth: int = 0) -> Any:
    """The function, input, parameter or constant with this uid, or None.

    Example:
        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> find_by_uid(x * 3, x.uid) is x
        True
    """
    return next((found for found in walk(node, depth) if found.uid == node_uid), None)


def get_node_outputs(node: Function, depth: int = 0) -> list[GraphVariable]:
    """The outputs of all functions, in the order of ``depth_first_search``.

    Example:
        >>> import cntkjax as C
        >>> [output.shape for output in get_node_outputs(C.input_variable(2) * 3)]
        [(2,)]
    """
    return [output for found in walk(node, depth) if isinstance(found, Function) for output in found.outputs]


def plot(root: Function, filename: str | os.PathLike[str] | None = None) -> str:
    """A line of text for each operation, operands first; with ``filename`` also a file.

    The ending says which: .txt these lines, .dot a text for Graphviz, .svg, .pdf or .png a picture, drawn by Graphviz
    if its program ``dot`` is there, else by matplotlib.

    Errors: ValueError for other endings; ImportError if a picture is wanted and neither program is there.
    Source: the lines are CNTK 2.7's, which writes no .txt.

    Example:
        >>> import cntkjax as C
        >>> print(plot(C.tanh(C.input_variable(2) * 3)))
        ElementTimes(Input..., Constant...) -> ElementTimes..._Output_0;
        <BLANKLINE>
        Tanh(ElementTimes..._Output_0) -> Tanh..._Output_0;
        <BLANKLINE>
    """
    lines = [
        f"{node.op_name}({', '.join(v.uid for v in operands(node))}) -> {output.uid};\n"
        for node in walk(root) if isinstance(node, Function) for output in node.outputs
    ]
    text = "\n".join(reversed(lines))
    if filename is not None:
        _write(root, os.fspath(filename), text)
    return text


def _write(root: Function, filename: str, text: str) -> None:
    kind = os.path.splitext(filename)[1]
    if kind not in _FORMATS:
        raise ValueError(f"plot: '{filename}' ends in none of {', '.join(_FORMATS)}")
    if kind not in (".txt", ".dot"):
        content = picture(drawing(root), kind[1:])
    else:
        content = (text if kind == ".txt" else dot_text(drawing(root))).encode()
    with open(filename, "wb") as file:
        file.write(content)
