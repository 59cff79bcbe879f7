"""What stands for a tensor while a graph is read: a CNTK variable, a known array, or both, made when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph.variable import Variable

FLOAT, INT, BOOL = "float", "int", "bool"


@dataclass(frozen=True)
class Dim:
    """The size of a free axis: known when there are data. Arithmetic with it gives sizes of which nothing is known."""

    variable: Any = None
    axis: int = 0

    def __repr__(self) -> str:
        return "?"

    def _unknown(self, *others: Any) -> Dim:
        return Dim()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _unknown
    __mod__ = __neg__ = _unknown


class Tensor:
    """A value of the graph.

    `array`: NumPy, of dtype object where sizes of free axes (`Dim`) are among its integers; None if it is not known.
    `variable`: in CNTK, always of a floating type.
    `uniform`: the value of all elements, where that is known although the size is not.
    """

    def __init__(
        self, kind: str, variable: Any = None, array: np.ndarray | None = None,
        make_variable: Callable[[], Any] | None = None, make_array: Callable[[], np.ndarray | None] | None = None,
        uniform: np.ndarray | None = None,
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
    def variable(self) -> Any:
        """The variable of CNTK."""
        if self._variable is None:
            if self._make_variable is None:
                raise ValueError("the size of a free axis cannot be computed with")
            self._variable = self._make_variable()
        return self._variable

    @property
    def has_variable(self) -> bool:
        """True if there is a variable already."""
        return self._variable is not None

    @property
    def is_known(self) -> bool:
        """True if there is an array without looking at data."""
        return self._array is not None or self._make_array is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes; -3 of free axes."""
        if self._variable is None and self._array is not None:
            return self._array.shape
        return tuple(self.variable.shape)


def output_of(value: Any) -> Variable:
    """The variable of a function of one output, or the variable itself."""
    return value if isinstance(value, Variable) else value.output


def plain(value: Any) -> np.ndarray:
    """An array; of objects only where sizes of free axes are among its elements."""
    value = np.asarray(value)
    if value.dtype == object and not any(isinstance(v, Dim) for v in value.reshape(-1).tolist()):
        return value.astype(np.int64)
    return value


def kind_of(dtype: Any) -> str:
    """Float, integer or boolean."""
    dtype = np.dtype(dtype)
    return BOOL if dtype == np.bool_ else INT if dtype.kind in "iuO" else FLOAT
