"""Operands: what users pass to operations, as variables of the graph."""

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
    """A variable: that of a function's only output, or a constant made of numbers.

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
    if dtype is None:
        dtype = array.dtype if isinstance(operand, (np.ndarray, np.generic)) and array.dtype.kind == "f" else np.float32
    return Constant(array, dtype=dtype)  # type: ignore[return-value]


def as_variables(*operands: Operand) -> list[Variable]:
    """Several operands of one operation; numbers take the type of the variables among them."""
    made = {i: as_variable(o) for i, o in enumerate(operands) if isinstance(o, (GraphVariable, GraphFunction))}
    dtype: Any = next((v.dtype for v in made.values() if v.dtype is not None), None)
    if dtype is None and not made:
        types = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic))]
        floats = [t for t in types if t.kind == "f"]
        dtype = np.result_type(*floats) if floats else None
    return [made[i] if i in made else as_variable(o, dtype) for i, o in enumerate(operands)]


def as_list(items: Any) -> list[Any]:
    """A list of what may be one thing or several."""
    return list(items) if isinstance(items, Sequence) and not isinstance(items, str) else [items]
