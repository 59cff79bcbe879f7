"""Operands of operations, as variables of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from .._typing import ArrayLike, DTypeLike
from ..graph.errors import OperandError
from ..graph.function import Function as GraphFunction
from ..graph.proxy import unwrap
from ..graph.variable import Variable as GraphVariable
from ..variables import Constant, Variable

# A variable, a function with one output, an array, numbers in lists, or a number.
Operand: TypeAlias = GraphVariable | GraphFunction | ArrayLike


def as_variable(operand: Operand, dtype: DTypeLike | None = None) -> Variable:
    """A variable: that of a function's only output, or a constant of numbers, by default in single precision.

    Errors: OperandError for what is neither; ValueError for a function with several outputs.
    """
    if isinstance(operand, GraphVariable):
        return operand  # type: ignore[return-value]
    if isinstance(operand, GraphFunction):
        return unwrap(operand).output
    if isinstance(operand, (str, bytes, dict)) or operand is None or callable(operand):
        raise OperandError(f"{operand!r} is no operand: pass a variable, a function's output, or numbers")
    array = np.asarray(operand)
    if array.dtype.kind not in "biuf":
        raise OperandError(f"an operand of type {array.dtype} is not supported: pass numbers in a regular array")
    return Constant(array, dtype=np.float32 if dtype is None else dtype)  # type: ignore[return-value]


def as_variables(*operands: Operand) -> list[Variable]:
    """Several operands of one operation; numbers take the type of the variables among them.

    Without a variable among them, they take the widest floating type of the NumPy arrays.
    """
    dtype = variable_type(*operands)
    if dtype is None and not any(map(_is_symbolic, operands)):
        dtype = numpy_type(*operands)
    return [as_variable(o, dtype) for o in operands]


def variable_type(*operands: Operand) -> DTypeLike | None:
    """The element type of the first variable among operands that has one; None if there is none."""
    types = (as_variable(o).dtype for o in operands if _is_symbolic(o))
    return next((t for t in types if t is not None), None)


def numpy_type(*operands: Operand) -> DTypeLike | None:
    """The widest floating type of the NumPy arrays among operands; None if there are none."""
    types = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic)) and o.dtype.kind == "f"]
    return np.result_type(*types) if types else None


def _is_symbolic(operand: Operand) -> bool:
    return isinstance(operand, (GraphVariable, GraphFunction))


def as_list(items: object) -> list[Any]:
    """One item or several, as a list."""
    return list(items) if isinstance(items, Sequence) and not isinstance(items, str) else [items]
