"""Types of elements: NumPy's types, CNTK's names and numbers for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._typing import ElementType

NUMBERS: dict[type[np.generic], int] = {np.float32: 1, np.float64: 2, np.float16: 4, np.int8: 5, np.int16: 6}
TYPES = {number: dtype for dtype, number in NUMBERS.items()}

_ALIASES: dict[Any, type[np.generic]] = {"float": np.float32, "double": np.float64, int: np.float32}


def as_dtype(dtype: ElementType | None) -> type[np.generic]:
    """NumPy's type for a name, a type, or CNTK's number of it.

    CNTK's name 'float' is 32 bits, while Python's ``float`` is 64; Python's ``int`` stands for 32 bit floats.

    Errors: ValueError for types that CNTK has no tensors of.

    >>> as_dtype("float"), as_dtype(float), as_dtype(4)
    (<class 'numpy.float32'>, <class 'numpy.float64'>, <class 'numpy.float16'>)
    """
    found: Any
    if isinstance(dtype, int):
        found = TYPES.get(dtype)
    elif isinstance(dtype, (str, type)) and dtype in _ALIASES:
        found = _ALIASES[dtype]
    else:
        try:
            found = None if dtype is None else np.dtype(dtype).type
        except TypeError:
            found = None
    if found not in NUMBERS:
        raise ValueError(f'data type "{dtype}" is not supported; there are float16, float32, float64, int8 and int16')
    return found
