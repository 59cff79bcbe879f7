"""Indices of elements: int32 in programs, and numbers of the operand's type in CNTK's results."""

from __future__ import annotations

from math import prod

import numpy as np

from ..graph.errors import ShapeError, explain
from ..graph.shape import Shape, is_known
from ..graph.variable import Edge

LARGEST_INDEX = 2**31 - 1


def check_size(op: str, shape: Shape, operand: Edge, what: str) -> None:
    """Errors: ShapeError if int32 cannot number the elements of a shape; `what` says of what this is the shape."""
    if is_known(shape) and prod(shape) > LARGEST_INDEX + 1:
        raise ShapeError(explain(
            f"{op}: {what} has {prod(shape):,} elements; indices go up to {LARGEST_INDEX:,}", {"operand": operand},
            "split it into parts, or hash the indices into a smaller range",
        ))


def check_results(op: str, shape: Shape, operand: Edge) -> None:
    """Errors: ShapeError if an index into `shape` may not be exact in the operand's type, of which the result is."""
    check_size(op, shape, operand, "the reduced part of the operand")
    if operand.dtype is None or not is_known(shape):
        return
    exact = 2 ** (np.finfo(operand.dtype).nmant + 1)
    if prod(shape) > exact + 1:
        raise ShapeError(explain(
            f"{op}: indices up to {prod(shape) - 1:,} are not exact in {np.dtype(operand.dtype).name}, the type of the "
            f"operand and of the result; it holds integers up to {exact:,}", {"operand": operand},
            "cast the operand to a wider type: cntk.cast(x, np.float64)",
        ))
