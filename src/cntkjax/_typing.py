"""Types that annotations share. Nothing is imported at run time, so every layer may use them.

`Array` is what a program computes with: a device array, or a tracer while it is traced. `PyTree` is any nesting of
lists, tuples, dicts and dataclasses with arrays as leaves, which no type of Python's describes more exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import jax

Array: TypeAlias = "jax.Array"
AnyArray: TypeAlias = "jax.Array | np.ndarray"
ArrayLike: TypeAlias = npt.ArrayLike
DTypeLike: TypeAlias = npt.DTypeLike
ElementType: TypeAlias = npt.DTypeLike | int  # of a tensor: a type of NumPy's, or CNTK's name or number of it
PyTree: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = int | Sequence[int]
Attributes: TypeAlias = Mapping[str, Any]  # of a node: numbers, texts, shapes, axes, arrays and dictionaries of them

__all__ = ["AnyArray", "Array", "ArrayLike", "Attributes", "DTypeLike", "ElementType", "PyTree", "Shape", "ShapeLike"]
