"""The geometry of windows of convolutions and poolings, in CNTK's arithmetic; and data with channels last.

Source: CNTK 2.7 on 1,270 combinations of size, stride, padding, rounding and length; some of them are in
tests/primitives/test_window.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import jax.numpy as jnp

from .._typing import Array
from ..engine.lower.values import Axes, Context, Traced
from ..graph.shape import FREE, INFERRED

T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """A window that moves along one axis.

    Units: cells of that axis. `before` and `after` are the padding that the window covers; negative where it omits
    cells. `count` is the number of positions; FREE or INFERRED if the length is not known yet. A window whose own size
    is INFERRED covers the axis.
    """

    size: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    @property
    def extent(self) -> int:
        """The number of cells from the first to the last one of the window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def is_whole(self) -> bool:
        """True if its only position covers the axis exactly."""
        return self.count == 1 and self.before == self.after == 0 and self.dilation == 1

    def slice_of(self, cell: int) -> slice:
        """The cells of the padded axis that one cell of the window covers, at all positions."""
        begin = cell * self.dilation
        return slice(begin, begin + (self.count - 1) * self.stride + 1, self.stride)


def place(
    length: int, size: int, stride: int = 1, dilation: int = 1, auto: bool = False, ceil: bool = False,
    before: int = 0, after: int = 0,
) -> Window:
    """The window along an axis of some length.

    With `auto` the centers of the windows are spread over the axis from end to end, and the remainder is split between
    the ends; otherwise the first window starts `before` cells in front of the axis. `ceil` adds a position for the
    remainder.

    >>> place(8, 3, stride=2, auto=True)
    Window(size=3, stride=2, dilation=1, before=1, after=0, count=4)
    """
    if length in (FREE, INFERRED):
        return Window(size, stride, dilation, before, after, 1 if size == INFERRED else length)
    extent = (size - 1) * dilation + 1
    span = length - 1 if auto else length + before + after - extent
    count = (-(-span // stride) if ceil else span // stride) + 1
    if auto:
        remainder = length - 1 - (count - 1) * stride
        before = (extent - 1) // 2 - int(remainder / 2)  # rounds toward zero, also where `ceil` makes it negative
    return Window(size, stride, dilation, before, (count - 1) * stride + extent - length - before, count)


def per_axis(values: Sequence[T], rank: int, channel: T | None = None) -> tuple[T, ...]:
    """One value for each axis: the first is repeated for leading axes without one; ValueError if there are too many.

    `channel`: the value of the first axis if it has none.
    """
    values = tuple(values)
    if len(values) > rank:
        raise ValueError(f"{len(values)} values for {rank} axes")
    if len(values) == rank:
        return values
    filled = (values[0],) * (rank - len(values)) + values
    return filled if channel is None else (channel, *filled[1:])


def channels_last(ctx: Context, value: Traced) -> Array:
    """The data of samples (C, *spatial) as [samples, *spatial, C]."""
    lead = ctx.lead(value.axes)
    data = value.data if value.channels_last else jnp.moveaxis(ctx.array(value), lead, -1)
    return data.reshape(prod(data.shape[:lead]), *data.shape[lead:])


def value_of(ctx: Context, data: Array, like: Traced, axes: Axes | None = None) -> Traced:
    """The value of data [samples, *spatial, C] with the leading dimensions of another value."""
    lead = ctx.lead(like.axes)
    leading = jnp.shape(ctx.array(like) if like.is_sparse else like.data)[:lead]
    data = data.reshape(*leading, *data.shape[1:])
    return Traced(data, like.axes if axes is None else axes, channels_last=data.ndim - lead > 1)


__all__ = ["Window", "channels_last", "per_axis", "place", "value_of"]
