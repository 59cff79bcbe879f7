"""A graph as text: one line for each operation, input, parameter and constant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..graph.axis import UNKNOWN_AXES, Axis
from ..graph.function import Function as GraphFunction
from ..graph.variable import Variable, kind_of
from ..graph.walk import walk
from ..ops.functions import Function

_DIGITS = "abcdefghijklmnopqrstuvwxyz"
_FIRST_AXIS = _DIGITS.index("n")  # sequence axes are n*, o*, ..., as lengths are


def dump_signature(root: Function, tag: str | None = None) -> None:
    """Print the signature of a function. CNTK takes a `tag` and makes nothing of it; so does this.

    Example:
        >>> import cntkjax as C
        >>> dump_signature(C.layers.Dense(2, name='d')(C.input_variable(3, name='x')))
        d: Dense(x: Tensor[3]) -> Tensor[2]
    """
    print(root)


def dump_function(root: Function, tag: str | None = None) -> None:
    """Print the signature of a function and all that it is made of, blocks opened; the root comes first.

    A line says operation, name, operands and results with their axes (``b*`` batch, ``n*`` the first sequence axis) and
    shapes. What has no name gets a letter.

    Example:
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
    """Letters for what has no name, and for axes, in the order in which they are met."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}
        self._axes: dict[Axis, str] = {}
        self._told = 0

    def of(self, item: GraphFunction | Variable) -> str:
        """Its name, or its letter; an argument inside a block has the name of what stands for it."""
        name = item.name
        return name or self._letters.setdefault(item.uid, _letter(len(self._letters)))

    def axes(self, variable: Variable) -> str:
        """``[b*,n*]``; nothing for what has no dynamic axes."""
        if variable.dynamic_axes == UNKNOWN_AXES:
            return "[?]"
        found = [self._axis(axis) if axis.is_sequence_axis else "b*" for axis in variable.dynamic_axes]
        return f"[{','.join(found)}]" if found else ""

    def _axis(self, axis: Axis) -> str:
        return self._axes.setdefault(axis, f"{_letter(_FIRST_AXIS + len(self._axes))}*")

    def new_axes(self) -> Iterator[str]:
        """Lines that tell what the axes are that have been met since the last call."""
        for axis, letter in list(self._axes.items())[self._told :]:
            yield f"Axis {axis.name} == {letter}"
        self._told = len(self._axes)


def _letter(number: int) -> str:
    """a, b, ..., z, ba, bb, ...: a number whose digits are letters."""
    rest, digit = divmod(number, len(_DIGITS))
    return (_letter(rest) if rest else "") + _DIGITS[digit]


def _line(node: Any, names: _Names) -> str:
    name = names.of(node)
    if isinstance(node, GraphFunction):
        results = _listed(node.outputs, names)
        return f"{node.op_name:<20} {name:<30} {_listed(node.inputs, names)} -> {results}"
    named = f"{name} {node.uid}" if kind_of(node).name in ("Input", "Placeholder") else name
    return f"{kind_of(node).name:<20} {named:<30}  {names.axes(node)}{node.shape}"


def _listed(variables: Any, names: _Names) -> str:
    return f"({', '.join(f'{names.of(v)}:{names.axes(v)}{v.shape}' for v in variables)})"


__all__ = ["dump_function", "dump_signature"]
