"""Walking through a graph, finding nodes in it, and drawing it."""
from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from cntkjax.graph.function import Function, nodes
from cntkjax.graph.variable import Variable as GraphVariable
from cntkjax.graph.walk import source_of, walk

__all__ = ["depth_first_search", "find_all_with_name", "find_by_name", "find_by_uid", "get_node_outputs", "plot"]

_FORMATS = (".svg", ".pdf", ".png", ".dot")


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
    """A line of text for each operation, operands first; with ``filename`` (.svg, .pdf, .png or .dot) also a drawing.

    Errors: ValueError for other endings; ImportError if a picture is wanted and Graphviz is not there.

    Example:
        >>> import cntkjax as C
        >>> print(plot(C.tanh(C.input_variable(2) * 3)))
        ElementTimes(Input..., Constant...) -> ElementTimes..._Output_0;
        <BLANKLINE>
        Tanh(ElementTimes..._Output_0) -> Tanh..._Output_0;
        <BLANKLINE>
    """
    graph = nodes([root.root_function])
    if filename is not None:
        _draw(graph, os.fspath(filename))
    return "".join(f"{node.op_name}({', '.join(operand.uid for operand in node.inputs)}) -> {output.uid};\n\n"
                   for node in graph for output in node.outputs)


def _draw(graph: list[Function], filename: str) -> None:
    kind = os.path.splitext(filename)[1]
    if kind not in _FORMATS:
        raise ValueError(f"plot: '{filename}' ends in none of {', '.join(_FORMATS)}")
    text = "\n".join(["digraph {", "rankdir=BT", "node [shape=box]", *_lines(graph), "}", ""])
    if kind == ".dot":
        with open(filename, "w") as file:
            file.write(text)
    elif (program := shutil.which("dot")) is None:
        raise ImportError(f"plot: a {kind} picture needs Graphviz: apt-get install graphviz, or write a .dot file")
    else:
        subprocess.run([program, "-T" + kind[1:], "-o", filename], input=text, text=True, check=True)


def _lines(graph: list[Function]) -> Iterator[str]:
    """Graphviz statements: operations are boxes, leaves ellipses, and edges carry shapes."""
    drawn: set[GraphVariable] = set()
    for node in graph:
        yield f"{_quoted(node.uid)} [label={_quoted(_label(node.op_name, node._name))}]"
        for operand in node.node_inputs:
            source = source_of(operand)
            if isinstance(source, GraphVariable) and source not in drawn:
                drawn.add(source)
                yield f"{_quoted(source.uid)} [shape=ellipse, label={_quoted(_label(source.kind.name, source.name))}]"
            yield f"{_quoted(source.uid)} -> {_quoted(node.uid)} [label={_quoted(str(operand.shape))}]"


def _label(kind: str, name: str) -> str:
    return f"{kind} {name}" if name else kind


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
