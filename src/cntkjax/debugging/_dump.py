"""Prints graphs: one line for each operation, input, parameter and constant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..graph.arguments import public
from ..graph.axis import UNKNOWN_AXES, Axis
from ..graph.function import Node
from ..graph.variable import Edge, kind_of
from ..graph.walk import walk
from ..ops.functions import Function

_DIGITS = "abcdefghijklmnopqrstuvwxyz"
_FIRST_AXIS = _DIGITS.index("n")  # sequence axes are n*, o*, ..., as lengths are


@public
def dump_signature(root: Function, tag: str | None = None) -> None:
    """Print the signature of a function. As in CNTK, `tag` has no effect.

    >>> import cntkjax as C
    >>> dump_signature(C.layers.Dense(2, name='d')(C.input_variable(3, name='x')))
    d: Dense(x: Tensor[3]) -> Tensor[2]
    """
    print(root)


@public
def dump_function(root: Function, tag: str | None = None) -> None:
    """Print the signature of a function and all nodes of its graph, with those inside of blocks, from the root down.

    A line lists operation, name, operands and results with their axes (``b*`` batch, ``n*`` the first sequence axis)
    and shapes. Nodes without a name are called by letters. As in CNTK, `tag` has no effect.

    >>> import cntkjax as C
    >>> dump_function(C.tanh(C.input_variable(3, name='x') * C.parameter(3, name='p'), name='t'))
    t: Composite(x: Tensor[3]) -> Tensor[3]
      Tanh                 t                              (a:[b*](3,)) -> (t:[b*](3,))
      ElementTimes         b                              (x:[b*](3,), p:(3,)) -> (a:[b*](3,))
      Input                x Input... [b*](3,)
      Parameter            p                               (3,)
    """
    dump_signature(root, tag)
    names = _Names()
    for node in walk(root, -1):
        line = _line(node, names)
        for axis in names.new_axes():
            print(f"  {axis}")
        print(f"  {line}")


class _Names:
    """Letters for nodes without a name, and for axes, in the order in which they occur."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}
        self._axes: dict[Axis, str] = {}
        self._num_printed = 0

    def of(self, item: Node | Edge) -> str:
        """The name or letter of a node; an argument inside a block has that of its operand."""
        name = item.name
        return name or self._letters.setdefault(item.uid, _letter(len(self._letters)))

    def axes(self, variable: Edge) -> str:
        """The dynamic axes, as in ``[b*,n*]``; empty if there are none."""
        if variable.dynamic_axes == UNKNOWN_AXES:
            return "[?]"
        symbols = [self._axis(axis) if axis.is_sequence_axis else "b*" for axis in variable.dynamic_axes]
        return f"[{','.join(symbols)}]" if symbols else ""

    def _axis(self, axis: Axis) -> str:
        return self._axes.setdefault(axis, f"{_letter(_FIRST_AXIS + len(self._axes))}*")

    def new_axes(self) -> Iterator[str]:
        """Lines that explain the axes that occurred since the last call."""
        for axis, letter in list(self._axes.items())[self._num_printed :]:
            yield f"Axis {axis.name} == {letter}"
        self._num_printed = len(self._axes)


def _letter(number: int) -> str:
    """A number whose digits are letters: a, b, ..., z, ba, bb, ..."""
    rest, digit = divmod(number, len(_DIGITS))
    return (_letter(rest) if rest else "") + _DIGITS[digit]


def _line(node: Node | Edge, names: _Names) -> str:
    name = names.of(node)
    if isinstance(node, Node):
        results = _listed(node.outputs, names)
        return f"{node.op_name:<20} {name:<30} {_listed(node.inputs, names)} -> {results}"
    named = f"{name} {node.uid}" if kind_of(node).name in ("Input", "Placeholder") else name
    return f"{kind_of(node).name:<20} {named:<30}  {names.axes(node)}{node.shape}"


def _listed(variables: Iterable[Edge], names: _Names) -> str:
    return f"({', '.join(f'{names.of(v)}:{names.axes(v)}{v.shape}' for v in variables)})"


__all__ = ["dump_function", "dump_signature"]
