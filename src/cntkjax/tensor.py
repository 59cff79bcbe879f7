"""Methods shared by tensors: arithmetic, indexing, conversion to NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._typing import DTypeLike
from .graph.public import operators
from .graph.shape import is_known

if TYPE_CHECKING:
    from .ops._indexing import Index
    from .ops._operand import Operand
    from .ops.functions import Function
    from .variables import Variable

_OPERATORS: dict[np.ufunc, str] = {
    np.add: "plus", np.subtract: "minus", np.multiply: "element_times", np.divide: "element_divide",
    np.matmul: "times", np.power: "pow", np.negative: "negate", np.absolute: "abs", np.square: "square",
    np.reciprocal: "reciprocal",
}


class TensorOpsMixin:
    """Operators of Variable, Parameter, Constant and Function.

    >>> import cntkjax as C
    >>> x = C.input_variable(3)
    >>> ((x + 1) * 2).eval({x: [[1, 2, 3]]})
    array([[4., 6., 8.]], dtype=float32)
    """

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *operands: Operand, **options: Any
    ) -> Function | np.ndarray | bool:
        """NumPy's operators, as in `array + tensor` or `np.abs(tensor)`, create graph nodes.

        Other unary NumPy functions are applied to the value, if there is one. An array never equals a tensor.
        """
        if ufunc in (np.equal, np.not_equal):
            return ufunc is np.not_equal
        if ufunc in _OPERATORS and method == "__call__" and not options:
            return operators[_OPERATORS[ufunc]](*operands)
        return getattr(ufunc, method)(np.asarray(self), **options) if len(operands) == 1 else NotImplemented

    def __add__(self, other: Operand) -> Function:
        return operators["plus"](self, other)

    def __radd__(self, other: Operand) -> Function:
        return operators["plus"](other, self)

    def __sub__(self, other: Operand) -> Function:
        return operators["minus"](self, other)

    def __rsub__(self, other: Operand) -> Function:
        return operators["minus"](other, self)

    def __mul__(self, other: Operand) -> Function:
        return operators["element_times"](self, other)

    def __rmul__(self, other: Operand) -> Function:
        return operators["element_times"](other, self)

    def __truediv__(self, other: Operand) -> Function:
        return operators["element_divide"](self, other)

    def __rtruediv__(self, other: Operand) -> Function:
        return operators["element_divide"](other, self)

    def __matmul__(self, other: Operand) -> Function:
        """``x @ W`` is ``times(x, W)``."""
        return operators["times"](self, other)

    def __rmatmul__(self, other: Operand) -> Function:
        return operators["times"](other, self)

    def __pow__(self, other: Operand) -> Function:
        return operators["pow"](self, other)

    def __neg__(self) -> Function:
        return operators["negate"](self)

    def __abs__(self) -> Function:
        return operators["abs"](self)

    def __getitem__(self, arg: Index) -> Variable | Function:
        """Index static axes with ints, slices, ``...``, and lists of indices, which gather."""
        return operators["index"](self, arg)

    def __iter__(self) -> Iterator[Variable | Function]:
        """``v[0]``, ``v[1]``, ... to the end of the first axis.

        Errors: TypeError if it has no size, since there would be no end.
        """
        sizes = self.shape  # type: ignore[attr-defined]
        if not sizes or not is_known(sizes[:1]):
            raise TypeError(f"{self!r} is not iterable: its first axis has no size; index it instead: v[0], v[1], ...")
        return (self[i] for i in range(sizes[0]))


class ArrayMixin:
    """Conversion of objects with data to NumPy."""

    def _numbers(self) -> Any:
        return np.asarray(self.value)  # type: ignore[attr-defined]

    def asarray(self) -> Any:
        """A copy of the data as a NumPy array, or as a CSR matrix if they are sparse with two axes.
        """
        return self._numbers().copy()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self._numbers()
        array = array.toarray() if hasattr(array, "tocsr") else array
        return array if dtype is None else array.astype(dtype)


__all__ = ["ArrayMixin", "TensorOpsMixin"]
