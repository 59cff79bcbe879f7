"""Types that annotations share. Nothing is imported at run time, so every layer may use them.

`Array` is what a program computes with: a device array, or a tracer while it is traced. `PyTree` is any nesting of
lists, tuples, dicts and dataclasses with arrays as leaves, which no type of Python's describes more exactly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

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


@dataclass(frozen=True)
class Bounds:
    """The range of a number, for ``Annotated``: public functions check their arguments against it.

    >>> Bounds(0, 1).contain(0.5), str(Bounds(1)), str(Bounds(0, 1))
    (True, 'of at least 1', 'from 0 to 1')
    """

    low: float = -math.inf
    high: float = math.inf

    def contain(self, value: float) -> bool:
        """Whether a number is in the range, its ends included."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"of at least {self.low}" if self.high == math.inf else f"from {self.low} to {self.high}"


class NaN:
    """NaN is a number, too, for ``Annotated``: of losses, and of values that fill a tensor."""


class Fix(str):
    """What to do about an argument that does not fit, for ``Annotated``: the end of the message."""


FileName: TypeAlias = str | os.PathLike[str]
Measured: TypeAlias = Annotated[float, NaN()]
Count: TypeAlias = Annotated[int, Bounds(1)]
Limit: TypeAlias = Annotated[int, Bounds(0)]
Seed: TypeAlias = Annotated[int, Bounds(0, 2**64 - 1)]

__all__ = [
    "AnyArray", "Array", "ArrayLike", "Attributes", "Bounds", "Count", "DTypeLike", "ElementType", "FileName", "Fix",
    "Limit", "Measured", "NaN", "PyTree", "Seed", "Shape", "ShapeLike",
]
