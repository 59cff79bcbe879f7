"""Conversion of operands to variables of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from .._typing import ArrayLike, DTypeLike
from ..graph.dtypes import as_dtype
from ..graph.errors import OperandError, explain
from ..graph.function import Node
from ..graph.proxy import unwrap
from ..graph.public import classes
from ..graph.shape import Shape
from ..graph.variable import Edge, VariableKind
from ..variables import Constant, Variable

# A variable, a function with one output, an array, a nested list of numbers, or a number.
Operand: TypeAlias = Edge | Node | ArrayLike


def as_variable(operand: Operand, dtype: DTypeLike | None = None) -> Variable:
    """The operand as a variable: a function's single output, or a constant for numbers, by default float32.

    Errors: OperandError for anything else; ValueError for a function with several outputs.
    """
    if isinstance(operand, Edge):
        return operand  # type: ignore[return-value]
    if isinstance(operand, Node):
        return unwrap(operand).output
    if isinstance(operand, (str, bytes, dict)) or operand is None or callable(operand):
        raise OperandError(f"{operand!r} is not an operand: pass a variable, a function with one output, or numbers")
    array = np.asarray(operand)
    if array.dtype.kind not in "biuf":
        if isinstance(operand, Iterator):
            raise OperandError(explain(
                f"a {type(operand).__name__} is not an operand: pass variables, functions with one output, or numbers",
                fix="`from cntk.ops import *` replaces Python's sum, abs, pow, round, slice and input: "
                "write builtins.sum(...) after `import builtins`, or import only the names that are needed",
            ))
        if isinstance(operand, (list, tuple)) and any(map(_is_symbolic, operand)):
            raise OperandError(explain(
                f"a {type(operand).__name__} of variables or functions is not an operand",
                fix="pass them one by one, as in splice(a, b), or join them by cntk.splice",
            ))
        raise OperandError(f"an operand of type {array.dtype} is not supported: pass numbers in a rectangular array")
    element = np.float32 if dtype is None else as_dtype(dtype)
    return classes.constant(VariableKind.Constant, array.shape, element, array=np.array(array, element))  # type: ignore[return-value]


def as_variables(*operands: Operand, widest: bool = True) -> list[Variable]:
    """The operands of one operation as variables; numbers take the element type of the first variable among them.

    If no operand is a variable, they take the widest floating-point type of the NumPy arrays.
    `widest=False`: they are single precision then.
    """
    variables = [as_variable(o) if _is_symbolic(o) else None for o in operands]
    dtype: DTypeLike | None = next((v.dtype for v in variables if v is not None and v.dtype is not None), None)
    if dtype is None and widest and all(v is None for v in variables):
        dtype = numpy_type(*operands)
    return [as_variable(o, dtype) if v is None else v for v, o in zip(variables, operands, strict=True)]


def number(value: float, dtype: DTypeLike | None, name: str = "") -> Constant:
    """A constant; without a type, it gets that of the operand beside it when this is known."""
    def sampled(shape: Shape, dtype: type) -> np.ndarray:
        return np.full(shape, value, dtype)

    return Constant._new(VariableKind.Constant, (), dtype, initializer=sampled, name=name)


def variable_type(*operands: Operand) -> DTypeLike | None:
    """The first known element type among the variables and functions; None if there is none."""
    types = (as_variable(o).dtype for o in operands if _is_symbolic(o))
    return next((t for t in types if t is not None), None)


def numpy_type(*operands: Operand) -> DTypeLike | None:
    """The widest floating-point type of the NumPy arrays among the operands; None if there are none."""
    types = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic)) and o.dtype.kind == "f"]
    return np.result_type(*types) if types else None


def _is_symbolic(operand: Operand) -> bool:
    return isinstance(operand, (Edge, Node))


def as_list(items: object) -> list[Any]:
    """A sequence as a list; any other object as a list of one item."""
    return list(items) if isinstance(items, Sequence) and not isinstance(items, str) else [items]
