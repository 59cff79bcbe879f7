"""Static axes of primitives: counted from the end, as in CNTK's files, so that they hold for any rank."""

from __future__ import annotations

from ..graph.axis import Axis
from ..graph.errors import AxisError, explain
from ..graph.variable import Edge


def position(op: str, axis: Axis, x: Edge, extra: int = 0) -> int:
    """The index of a static axis in the shape of `x`, from the front; with `extra` more axes after the last.

    Errors: AxisError for an axis that the shape does not have, or that is not static.
    """
    rank = len(x.shape) + extra
    if not axis.is_static_axis:
        raise AxisError(explain(
            f"{op}: {axis!r} is not a static axis of the operand", {"operand": x}, "give its index"
        ))
    index = axis.static_axis_index()
    if not -rank <= index < rank:
        raise AxisError(explain(
            f"{op}: static axis {index} is out of bounds for an operand with {len(x.shape)} static axes",
            {"operand": x},
            f"give an axis from {-rank} to {rank - 1}" if rank else "the operand is a scalar and has no axes",
        ))
    return index % rank


def stored(op: str, axis: Axis, x: Edge, extra: int = 0) -> Axis:
    """The axis counted from the end; axes that are not static are returned unchanged."""
    return Axis(position(op, axis, x, extra) - len(x.shape) - extra) if axis.is_static_axis else axis
