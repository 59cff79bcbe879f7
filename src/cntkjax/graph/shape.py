"""Arithmetic on sample shapes: row-major tuples with inferred, free and unknown parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from .._typing import ShapeLike

Shape = tuple[int, ...]

INFERRED = -1  # inferred from the operands at first use
FREE = -3  # determined by the data of each minibatch
INVALID = -4  # less than any size
UNKNOWN_SHAPE: Shape = (-2,)  # not even the rank is known
_ENDLESS = 2**63


def is_unknown(shape: Shape) -> bool:
    """True if not even the rank is known."""
    return shape == UNKNOWN_SHAPE


def is_known(shape: Shape) -> bool:
    """True if every dimension has a size."""
    return all(d >= 0 for d in shape)


def size(shape: Shape) -> int:
    """Number of elements of a known shape."""
    return prod(shape)


def as_shape(shape: float | Iterable[Any]) -> Shape:
    """A number or an iterable of numbers as a tuple of ints; as in CNTK, 4.0 is accepted.

    Errors: ValueError for a dimension that is not a whole number.

    >>> as_shape(3), as_shape([2, 4.0])
    ((3,), (2, 4))
    """
    if type(shape) is tuple and all(type(d) is int and FREE <= d < _ENDLESS for d in shape):
        return shape
    dimensions = (shape,) if isinstance(shape, (int, float, np.number)) else tuple(shape)
    sizes = tuple(int(d) if _is_size(d) else INVALID for d in dimensions)
    if INVALID in sizes:
        raise ValueError(
            f"the sizes of a shape are whole numbers, -1 (inferred) or -3 (determined by the data), not {shape!r}"
        )
    return sizes


def _is_size(dimension: object) -> bool:
    number = isinstance(dimension, (int, float, np.number))
    return number and dimension == dimension // 1 and FREE <= dimension < _ENDLESS  # type: ignore[operator]


def shape_text(shape: Shape) -> str:
    """``[3 x 2]``, as CNTK prints shapes."""
    if is_unknown(shape):
        return "[???]"
    return "[%s]" % " x ".join({INFERRED: "?", FREE: "*"}.get(d, str(d)) for d in shape)


def facing(shapes: Iterable[Shape]) -> list[tuple[int, ...]]:
    """The dimensions, aligned at the last axis, that have to be equal where shapes broadcast: those other than 1.

    >>> facing([(4, 2, 1), (3,)])
    [(4,), (2,), (3,)]
    """
    shapes = list(shapes)
    rank = max((len(s) for s in shapes), default=0)
    aligned = zip(*[(1,) * (rank - len(s)) + s for s in shapes], strict=True)
    return [tuple(d for d in dims if d != 1) for dims in aligned]


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The shape to which all broadcast, aligned at the last axis; None if they don't fit.

    An inferred or free dimension takes the size that another operand has there. Where those have 1, an inferred one
    becomes 1 as in CNTK if the operand of 1 comes after it, and stays open otherwise.

    >>> broadcast([(2, 1), (3,)]), broadcast([(-1,), (1,)]), broadcast([(1,), (-1,)])
    ((2, 3), (1,), (-1,))
    """
    shapes = list(shapes)
    distinct = {*shapes, ()}
    if len(distinct) < 3:  # all are equal, but for single numbers
        return max(distinct, key=len)
    result: list[int] = []
    faced = facing(distinct)
    for at, dims in enumerate(faced, -len(faced)):
        sizes = {d for d in dims if d >= 0}
        if len(sizes) > 1:
            return None
        if sizes:
            result.append(sizes.pop())
        elif FREE in dims:
            result.append(FREE)
        else:
            result.append([s[at] for s in shapes if len(s) >= -at][-1])
    return tuple(result)


def filled(shape: Shape, size: int) -> Shape | None:
    """The shape with its free dimension such that it has `size` elements; None if that cannot be.

    >>> filled((-3, 3), 12), filled((2, 3), 12)
    ((4, 3), None)
    """
    known = prod(d for d in shape if d >= 0)
    if sum(d < 0 for d in shape) != 1:
        return shape if known == size and is_known(shape) else None
    return None if size % known else tuple(size // known if d < 0 else d for d in shape)


def normal_axis(axis: int, rank: int) -> int:
    """A static axis counted from the front; IndexError if there is no such axis."""
    if not -rank <= axis < rank:
        raise IndexError(f"static axis {axis} does not exist in a shape of rank {rank}")
    return axis % rank


def merge_dimension(a: int, b: int) -> int | None:
    """The size that two dimensions agree on, or None."""
    if a == b or b < 0:
        return a if a >= 0 or b != FREE else b
    if a < 0:
        return b
    return None


def matches(declared: Sequence[int], actual: Sequence[int]) -> bool:
    """True if an actual shape is allowed by a declared one with inferred or free dimensions."""
    return len(declared) == len(actual) and all(d < 0 or d == a for d, a in zip(declared, actual, strict=True))


class NDShape:
    """A shape of CNTK's compiled module: the constructor and `dimensions` have opposite orders.

    >>> shape = NDShape((2, 3))
    >>> shape.dimensions(), shape[0], shape.total_size(), shape == NDShape([2, 3])
    ((3, 2), 3, 6, True)
    """

    def __init__(self, dimensions: ShapeLike = (), fill: int | None = None) -> None:
        """The sizes, the fastest axis first; or a number of axes and the size of each."""
        if not isinstance(dimensions, int):
            sizes = as_shape(dimensions)
        else:
            sizes = (INFERRED if fill is None else fill,) * dimensions
        self._dimensions = sizes[::-1]

    @staticmethod
    def unknown() -> NDShape:
        """The unknown shape."""
        return NDShape(UNKNOWN_SHAPE)

    def dimensions(self) -> Shape:
        """The sizes, the fastest axis last."""
        return self._dimensions

    def rank(self) -> int:
        """Number of axes."""
        return len(self._dimensions)

    def total_size(self) -> int:
        """Number of elements. Errors: RuntimeError if a size is not known."""
        if not is_known(self._dimensions):
            raise RuntimeError(f"{self!r} has dimensions of unknown size, so it has no total size")
        return size(self._dimensions)

    def sub_shape(self, begin: int = 0, end: int | None = None) -> Shape:
        """The sizes of a range of axes, counted from the fastest one."""
        return self._dimensions[::-1][begin:end][::-1]

    def is_scalar(self) -> bool:
        """True if it has no axes."""
        return not self._dimensions

    def is_unknown(self) -> bool:
        """True if not even the rank is known."""
        return is_unknown(self._dimensions)

    def has_inferred_dimension(self) -> bool:
        """True if a size is to be inferred from operands."""
        return INFERRED in self._dimensions

    def has_free_dimension(self) -> bool:
        """True if the data of a minibatch determine a size."""
        return FREE in self._dimensions

    def has_unbound_dimension(self) -> bool:
        """True if a size is to be inferred, or determined by the data."""
        return self.has_inferred_dimension() or self.has_free_dimension()

    def as_string(self) -> str:
        """``[4 x 3 x 2]``, the fastest axis last."""
        return shape_text(self._dimensions)

    def __getitem__(self, axis: int) -> int:
        return self._dimensions[axis]

    def __len__(self) -> int:
        return len(self._dimensions)

    def __eq__(self, other: object) -> bool:
        return self._dimensions == (other._dimensions if isinstance(other, NDShape) else other)

    def __hash__(self) -> int:
        return hash(self._dimensions)

    def __repr__(self) -> str:
        return f"NDShape({self._dimensions[::-1]})"
