"""Types of elements: NumPy's types, CNTK's names and numbers for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._typing import ElementType

NUMBERS: dict[type[np.generic], int] = {np.float32: 1, np.float64: 2, np.float16: 4, np.int8: 5, np.int16: 6}
TYPES = {number: dtype for dtype, number in NUMBERS.items()}

_ALIASES: dict[Any, type[np.generic]] = {"float": np.float32, "double": np.float64, int: np.float32}


def holds_numbers(array: np.ndarray) -> bool:
    """True for real numbers; False for objects, texts and complex numbers, which NumPy converts to some number too.

    >>> holds_numbers(np.array([1, 2])), holds_numbers(np.array([None, 1]))
    (True, False)
    """
    return array.dtype.kind in "biuf" or array.dtype.name == "bfloat16"


def as_dtype(dtype: ElementType | None) -> type[np.generic]:
    """NumPy's type for a name, a type, or CNTK's number of it.

    CNTK's name 'float' has 32 bits, Python's ``float`` 64; Python's ``int`` means 32 bit floats.

    Errors: ValueError for types that CNTK has no tensors of.

    >>> as_dtype("float"), as_dtype(float), as_dtype(4)
    (<class 'numpy.float32'>, <class 'numpy.float64'>, <class 'numpy.float16'>)
    """
    element: Any
    if type(dtype) is type and dtype in NUMBERS:
        return dtype
    if isinstance(dtype, int):
        element = TYPES.get(dtype)
    elif isinstance(dtype, (str, type)) and dtype in _ALIASES:
        element = _ALIASES[dtype]
    else:
        try:
            element = None if dtype is None else np.dtype(dtype).type
        except TypeError:
            element = None
    if element not in NUMBERS:
        raise ValueError(f'data type "{dtype}" is not supported: use float16, float32, float64, int8 or int16')
    return element
