"""The values of tensors while a graph is read: a CNTK variable, a known array, or both, created when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...._typing import DTypeLike
from ....graph.build import apply
from ....graph.variable import Edge
from ....ops.functions import Function
from ....primitives.base import BY_NAME

FLOAT, INT, BOOL = "float", "int", "bool"

Operand: TypeAlias = Edge | Function  # a function of one output


@dataclass(frozen=True)
class Dim:
    """The size of a free axis, which only the data determine. The results of arithmetic with it are unknown sizes."""

    variable: Edge | Function | None = None
    axis: int = 0

    def __repr__(self) -> str:
        return "?"

    def _unknown(self, *others: object) -> Dim:
        return Dim()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _unknown
    __mod__ = __neg__ = _unknown


class OnnxTensor:
    """A value of the graph.

    `array`: NumPy, of dtype object if sizes of free axes (`Dim`) are among its integers; None if it is not known.
    `variable`: the variable in CNTK, always of a floating type.
    `uniform`: the value of all elements, if it is known although the size is not.
    """

    def __init__(
        self, kind: str, variable: Operand | None = None, array: np.ndarray | None = None,
        make_variable: Callable[[], Operand] | None = None,
        make_array: Callable[[], np.ndarray | None] | None = None, uniform: np.ndarray | None = None,
    ) -> None:
        self.kind = kind
        self.uniform = uniform
        self._variable, self._array = variable, array
        self._make_variable, self._make_array = make_variable, make_array

    @property
    def array(self) -> np.ndarray | None:
        """The value, if it does not depend on data."""
        if self._array is None and self._make_array is not None:
            self._array, self._make_array = self._make_array(), None
        return self._array

    @property
    def variable(self) -> Operand:
        """The variable in CNTK. Errors: ValueError for the size of a free axis, which cannot be one."""
        if self._variable is None:
            if self._make_variable is None:
                raise ValueError("operations on the size of a free axis are not supported")
            self._variable = self._make_variable()
        return self._variable

    @property
    def has_variable(self) -> bool:
        """True if the variable has been created."""
        return self._variable is not None

    @property
    def is_known(self) -> bool:
        """True if the value does not depend on data."""
        return self._array is not None or self._make_array is not None

    @property
    def has_open_sizes(self) -> bool:
        """True if sizes of free axes are among the elements."""
        return self._array is not None and self._array.dtype == object

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; -3 for free axes."""
        if self._variable is None and self._array is not None:
            return self._array.shape
        return tuple(self.variable.shape)


Output: TypeAlias = Operand | np.ndarray | OnnxTensor
Outputs: TypeAlias = Output | Sequence[Output]


def output_of(value: Operand) -> Edge:
    """The output of a function of one output, or the variable itself."""
    return value if isinstance(value, Edge) else value.output


def apply_primitive(name: str, operands: Sequence[Operand], attributes: Mapping[str, object] | None = None) -> Function:
    """A function of a new node of a primitive, for conversions that public operations do not cover."""
    return apply(BY_NAME[name], [output_of(v) for v in operands], dict(attributes or {}))  # type: ignore[return-value]


def output_list(outputs: Outputs) -> list[Output]:
    """A list of one or several outputs."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]  # type: ignore[list-item]


def array_list(arrays: np.ndarray | list[np.ndarray]) -> list[np.ndarray]:
    """A list of one or several arrays."""
    return arrays if isinstance(arrays, list) else [arrays]


def plain(value: np.ndarray) -> np.ndarray:
    """The array; of objects only if sizes of free axes are among its elements."""
    value = np.asarray(value)
    if value.dtype == object and not any(isinstance(v, Dim) for v in value.reshape(-1).tolist()):
        return value.astype(np.int64)
    return value


def kind_of(dtype: DTypeLike) -> str:
    """The kind of a NumPy type: FLOAT, INT or BOOL."""
    dtype = np.dtype(dtype)
    return BOOL if dtype == np.bool_ else INT if dtype.kind in "iuO" else FLOAT
