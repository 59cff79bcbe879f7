"""Maximum and average pooling, unpooling, and pooling over regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array
from ..engine.lower.values import Context, Traced
from ..engine.native.library import NONE, RELU
from ..engine.native.program import Operation
from ..engine.xla.platform import lowering
from ..graph.build import Spec
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, Shape, is_known, is_unknown
from ..graph.variable import Edge
from ._maxima import first_of_largest, joint_maximum, maximum, padded, put, shifted, tap, total, untap
from ._window import Window, channels_last, per_axis, place, value_of
from .base import Attrs, Bool, Double, Primitive, ShapeOf, Size, primitive

MAX, AVERAGE = 0, 1
MOST_CELLS = 32  # of a window that is pooled in one pass: each is an operand of the kernel

T = TypeVar("T")


def windows_of(attrs: Attrs, sizes: Shape, shape: Shape) -> list[Window]:
    """The window along each axis of an operand; leading axes without a size are not pooled, nor are scalars.

    Errors: ValueError if there are more values than axes, or a window does not fit.
    """
    rank, window_rank = len(shape), len(sizes)
    if rank == window_rank == 0:
        return []

    def options(values: Sequence[T], leading: T) -> tuple[T, ...]:
        if len(values) <= window_rank:
            values = (leading,) * (rank - window_rank) + per_axis(values, window_rank)
        return per_axis(values, rank)

    if window_rank > rank:
        raise ValueError(f"the window has {window_rank} axes, and the operand {rank}")
    strides, auto = options(attrs["strides"], 1), options(attrs["autoPadding"][::-1], False)
    if min(strides, default=1) < 1:
        raise ValueError(f"the strides {strides} have to be positive")
    low, high = options(attrs["lowerPad"], 0), options(attrs["upperPad"], 0)
    ceil = attrs.get("ceilOutDim", False)
    if min(sizes, default=1) < 1:
        raise ValueError(f"the window {tuple(sizes)} has to have sizes of at least 1")
    sizes = (1,) * (rank - window_rank) + tuple(sizes)
    windows = []
    for axis, n in enumerate(shape):
        window = place(n, sizes[axis], strides[axis], 1, auto[axis], ceil, low[axis], high[axis])
        if n >= 0 and (window.count < 1 or (not auto[axis] and window.size > n + low[axis] + high[axis])):
            raise ValueError(f"the window has {window.size} cells along axis {axis}, and the operand {n}")
        windows.append(window)
    return windows


def _fail(op: str, reason: object, x: Edge) -> ShapeError:
    return ShapeError(explain(
        f"{op}: {reason}", {"operand": x},
        "give sizes of at least 1 that fit into the operand, or pad it with auto_padding=[True]"
    ))


@primitive("Pooling", 17)
class Pooling(Primitive):
    """The largest value (poolingType 0) or the mean (1) of each window. Of equal maxima the first gets the gradient.

    Shapes: x [C, *spatial] -> [C, *positions]; a window of fewer axes moves along the last axes. An unknown window
            covers all axes after the channels.
    Means exclude padding unless `includePad` is set; the mean of no cells is 0.
    Source: CNTK 2.7.
    """

    attributes = {
        "poolingType": Size(MAX), "poolingWindowShape": ShapeOf, "strides": ShapeOf((1,)),
        "autoPadding": Bool.vector([False]), "lowerPad": ShapeOf((0,)), "upperPad": ShapeOf((0,)),
        "ceilOutDim": Bool(False), "includePad": Bool(False),
    }
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The positions of the window; fills in an unknown window."""
        (x,) = inputs
        if attrs["poolingType"] not in (MAX, AVERAGE):
            raise ShapeError(explain(
                f"{self.name}: there is no pooling type {attrs['poolingType']}", {"operand": x},
                "give cntk.MAX_POOLING or cntk.AVG_POOLING",
            ))
        sizes = attrs["poolingWindowShape"]
        if is_unknown(sizes):
            if FREE in x.shape[1:]:
                return (*x.shape[:1], *(1 for _ in x.shape[1:]))
            sizes = attrs["poolingWindowShape"] = x.shape[1:]
        try:
            return tuple(w.count for w in windows_of(attrs, sizes, x.shape))
        except ValueError as e:
            raise _fail(self.name, e, x) from None

    def by_steps(self, node: Node) -> Operation | None:
        """Along one or two axes."""
        return _pooling_by_steps(node, NONE)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """Of data with channels last."""
        is_scalar = ctx.lead(x.axes) == len(x.data.shape)
        return x if is_scalar else value_of(ctx, _pooled(channels_last(ctx, x), attrs), x)


class RectifiedPooling(Primitive):
    """The largest values of windows of relu(x).

    relu passes a gradient to a cell that is the maximum of a window if and only if that maximum is positive. So the
    backward pass reads the maxima instead of all cells: AlexNet's step moves 264 MB on a GPU instead of 303.

    Shapes: those of `Pooling`.
    """

    name = "RectifiedPooling"
    packed = True

    def by_steps(self, node: Node) -> Operation | None:
        """relu after the maxima."""
        return _pooling_by_steps(node, RELU)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """The gradient of relu comes after the maxima instead of before them."""
        return value_of(ctx, _where_positive(_pooled(_unmasked_relu(channels_last(ctx, x)), attrs)), x)


def _pooling_by_steps(node: Node, activation: int) -> Operation | None:
    (x,), attrs = node.node_inputs, node.node_attributes
    if len(x.shape) not in (2, 3) or not is_known(x.shape):
        return None
    channels, *windows = _windows_along(attrs, x.shape)
    if _moves(channels):
        return None
    is_mean = attrs["poolingType"] == AVERAGE
    return Operation(lambda writer, value: writer.activated(
        writer.pool(writer.image(value, x.shape), windows, is_mean, attrs["includePad"]), activation
    ))


@jax.custom_jvp
def _unmasked_relu(x: Array) -> Array:
    """relu with the gradient of the identity."""
    return jax.nn.relu(x)


@jax.custom_jvp
def _where_positive(x: Array) -> Array:
    """The identity with the gradient of relu."""
    return x


_unmasked_relu.defjvp(lambda at, along: (_unmasked_relu(*at), *along))
_where_positive.defjvp(lambda at, along: (_where_positive(*at), jnp.where(at[0] > 0, along[0], 0)))
RECTIFIED_POOLING = RectifiedPooling()


def _pooled(data: Array, attrs: Attrs) -> Array:
    """Axis by axis, the last one first, as its cells are adjacent in CNTK's order; or all cells at once.

    Shapes: [n, *spatial, C] -> [n, *positions, C].
    """
    shape = (data.shape[-1], *data.shape[1:-1])
    windows = _windows_along(attrs, shape)
    largest = attrs["poolingType"] == MAX
    if largest and lowering().pooling_in_one_pass and prod(w.size for w in windows) <= MOST_CELLS:
        return _maxima_of(data, windows)
    for axis in reversed(range(len(shape))):
        window = windows[axis]
        if _moves(window):
            at = _at(axis, data.ndim)
            data = padded(data, at, window, -np.inf if largest else 0)
            data = (maximum if largest else total)(data, at, window, data.shape[at])
    return data if largest else data / _cells(windows, shape, attrs["includePad"]).astype(data.dtype)


def _windows_along(attrs: Attrs, shape: Shape) -> list[Window]:
    """Those of a pooling, whose window may cover all positions, whatever their number."""
    sizes = attrs["poolingWindowShape"]
    return windows_of(attrs, shape[1:] if is_unknown(sizes) else sizes, shape)


def _maxima_of(data: Array, windows: Sequence[Window]) -> Array:
    """The maxima of windows along all axes, from all cells of a window at once."""
    places = tuple((_at(axis, data.ndim), window) for axis, window in enumerate(windows) if _moves(window))
    for at, window in places:
        data = padded(data, at, window, -np.inf)
    return joint_maximum(data, places, data.shape) if places else data


def _moves(window: Window) -> bool:
    """False for a window that leaves its axis as it is."""
    return window.size > 1 or window.stride > 1 or window.before != 0 or window.after > 0


def _at(axis: int, ndim: int) -> int:
    """The index of an axis of a sample in channels-last data."""
    return ndim - 1 if axis == 0 else axis


def _cells(windows: Sequence[Window], shape: Shape, include_pad: bool) -> np.ndarray:
    """The number of cells at each position, of a shape that broadcasts with [n, *positions, C]."""
    if include_pad:
        return np.asarray(prod(w.size for w in windows))
    counts = []
    for n, w in zip(shape, windows, strict=True):
        begin = np.arange(w.count) * w.stride - w.before
        counts.append(np.minimum(begin + w.size, n) - np.maximum(begin, 0))
    cells = np.ones(())
    for count in [*counts[1:], counts[0]]:
        cells = cells[..., None] * np.maximum(count, 0)
    cells = np.maximum(cells, 1)
    return cells.ravel()[:1].reshape(()) if (cells == cells.flat[0]).all() else cells


@primitive("Unpooling", 58)
class Unpooling(Primitive):
    """Values written to the positions of the maxima of another pooling's windows; zeros elsewhere.

    Where windows overlap and share their maximum, the last one is used. The gradient of each value is read at the
    position of its window's maximum (CNTK takes the largest gradient in the window instead).

    Shapes: x [C, *positions], pooled [C, *spatial] -> [C, *spatial].
    Source: CNTK 2.7.
    """

    attributes = {
        "poolingType": Size(MAX), "unpoolingWindowShape": ShapeOf, "strides": ShapeOf((1,)),
        "autoPadding": Bool.vector([False]), "lowerPad": ShapeOf((0,)), "upperPad": ShapeOf((0,)),
    }
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the pooled operand."""
        x, pooled = inputs
        try:
            windows = windows_of(attrs, attrs["unpoolingWindowShape"], pooled.shape)
        except ValueError as e:
            raise _fail(self.name, e, pooled) from None
        expected = tuple(w.count for w in windows)
        if any(a != b and a >= 0 and b >= 0 for a, b in zip(x.shape, expected, strict=True)):
            raise ShapeError(explain(
                f"{self.name}: pooling the second operand with these options gives {expected}",
                {"operand": x, "pooled": pooled}, "give the options with which the first operand was pooled",
            ))
        return Spec(pooled.shape, axes=max(x.dynamic_axes, pooled.dynamic_axes, key=len))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, pooled: Traced) -> Traced:
        """One strided update for each cell of the window, the cells of the last windows last."""
        axes = max(x.axes, pooled.axes, key=len)
        x, pooled = (ctx.to_axes(v, axes) for v in (x, pooled))
        if not x.channels_last and not pooled.channels_last:
            values, source = ctx.array(x), ctx.array(pooled)
            windows = windows_of(attrs, attrs["unpoolingWindowShape"], source.shape[ctx.lead(axes):])
            if _are_adjacent(windows, source.shape[ctx.lead(axes):]):
                return Traced(_into_cells(values, source, windows), axes)
        values, source = channels_last(ctx, x), channels_last(ctx, pooled)
        shape = (source.shape[-1], *source.shape[1:-1])
        windows = windows_of(attrs, attrs["unpoolingWindowShape"], shape)
        places = tuple((_at(axis, source.ndim), w) for axis, w in enumerate(windows))
        for at, w in places:
            source = padded(source, at, w, -np.inf)
        cells = tuple(product(*(range(w.size) for w in windows)))
        _, which = first_of_largest([tap(lax.stop_gradient(source), places, cell) for cell in cells])
        whole = _unpooled(values, which, places, cells, source.shape)
        for at, w in places:
            n = shape[0] if at == source.ndim - 1 else shape[at]
            whole = shifted(whole, at, -w.before, n)
        return value_of(ctx, whole, pooled)


Places = tuple[tuple[int, Window], ...]


def _are_adjacent(windows: Sequence[Window], shape: Sequence[int]) -> bool:
    """True if windows neither overlap nor leave gaps."""
    return all(w.stride == w.size and w.count * w.size == n for w, n in zip(windows, shape, strict=True))


def _into_cells(values: Array, source: Array, windows: Sequence[Window]) -> Array:
    """Values written to the maxima of adjacent windows.

    Shapes: values [..., *positions], source [..., *spatial] -> [..., *spatial].
    """
    lead, rank = source.ndim - len(windows), len(windows)
    counts, sizes = [w.count for w in windows], [w.size for w in windows]
    order = [*range(lead), *range(lead, lead + 2 * rank, 2), *range(lead + 1, lead + 2 * rank, 2)]  # sizes last
    split = [*source.shape[:lead], *(n for w in windows for n in (w.count, w.size))]
    cells = lax.stop_gradient(source).reshape(split).transpose(order).reshape(*values.shape, -1)
    is_maximum = jnp.arange(cells.shape[-1]) == jnp.argmax(cells, -1)[..., None]
    result = jnp.where(is_maximum, values[..., None], 0).reshape(*source.shape[:lead], *counts, *sizes)
    return result.transpose(np.argsort(order)).reshape(source.shape)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _unpooled(values: Array, which: Array, places: Places, cells: tuple[tuple[int, ...], ...], shape: Shape) -> Array:
    if _are_adjacent([w for _, w in places], [shape[at] for at, _ in places]):
        return _interleave([jnp.where(which == i, values, 0) for i in range(len(cells))], places)
    whole = jnp.zeros(shape, values.dtype)
    for i, cell in reversed(list(enumerate(cells))):
        mask = which == i
        update, is_updated = (
            put(d, places, cell, shape) for d in (jnp.where(mask, values, 0), mask.astype(values.dtype))
        )
        whole = jnp.where(is_updated > 0, update, whole)
    return whole


def _interleave(parts: list[Any], places: Places) -> Array:
    """The cells of adjacent windows interleaved, beginning with the last axis."""
    for at, w in reversed(places):
        groups = [parts[i : i + w.size] for i in range(0, len(parts), w.size)]
        parts = [untap(group, at, w, w.count * w.size) if w.size > 1 else group[0] for group in groups]
    return parts[0]


def _unpooled_forward(values: Array, which: Array, *options: Array) -> tuple[Array, Array]:
    return _unpooled(values, which, *options), which


def _unpooled_backward(
    places: Places, cells: tuple[tuple[int, ...], ...], shape: Shape, which: Array, g: Array
) -> tuple[Array, None]:
    gradients = (jnp.where(which == i, tap(g, places, cell), 0) for i, cell in enumerate(cells))
    return reduce(jnp.add, gradients), None


_unpooled.defvjp(_unpooled_forward, _unpooled_backward)


@primitive("ROIPooling", 47)
class ROIPooling(Primitive):
    """The maxima in a grid of cells over each region of interest; cells overlap if the region does not divide evenly.

    Shapes: x [C, H, W], rois [n, 4] -> [n, C, *roiOutputShape].
    Units: a region is x1, y1, x2, y2, inclusive, in cells of x divided by `spatialScale`; halves are rounded up.
    Errors: ShapeError if the regions do not have four numbers; ValueError for means, which CNTK does not have either.
    Source: CNTK 2.7; Girshick, Fast R-CNN (2015), section 2.1.
    """

    attributes = {"poolingType": Size(MAX), "roiOutputShape": ShapeOf, "spatialScale": Double(0.0625)}

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """A grid for each region."""
        x, rois = inputs
        if attrs["poolingType"] != MAX:
            raise ValueError(f"{self.name}: only maxima can be pooled over regions; give MAX_POOLING")
        if len(x.shape) != 3 or len(rois.shape) != 2 or rois.shape[1] != 4:
            raise ShapeError(explain(
                f"{self.name}: the regions have to be [number of regions, 4], the operand [channels, height, width]",
                {"operand": x, "regions": rois},
            ))
        if min(attrs["roiOutputShape"]) < 1:
            raise ShapeError(explain(
                f"{self.name}: the output shape {attrs['roiOutputShape']} of a region has to have sizes of at least 1",
                {"operand": x, "regions": rois},
            ))
        return (rois.shape[0], x.shape[0], *attrs["roiOutputShape"])

    def lower(self, attrs: Attrs, x: Array, rois: Array) -> Array:
        """For each column of cells the maxima over its columns of x, then the same for the rows."""
        high, wide = attrs["roiOutputShape"]
        corners = jnp.floor(lax.stop_gradient(rois) * attrs["spatialScale"] + 0.5).astype(jnp.int32)

        def pool(corner: Array) -> Array:
            columns = _inside(corner[0], corner[2], wide, x.shape[2])
            rows = _inside(corner[1], corner[3], high, x.shape[1])
            inner = [_masked_maximum(x, c[None, None, :], 2) for c in columns]
            cells = [[_masked_maximum(m, r[None, :], 1) for m in inner] for r in rows]
            grid = jnp.stack([jnp.stack(row, -1) for row in cells], -2)
            return jnp.where(jnp.isneginf(grid), jnp.zeros((), x.dtype), grid)

        return lax.map(pool, corners)  # at once, each region would need a copy of x in memory


def _inside(first: Array, last: Array, cells: int, length: int) -> list[Array]:
    """For each cell of a region from `first` to `last`, a mask of its positions along an axis."""
    extent = jnp.maximum(last - first + 1, 1)
    position = jnp.arange(length)
    return [
        (position >= first + i * extent // cells) & (position < first - -(i + 1) * extent // cells)
        for i in range(cells)
    ]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _masked_maximum(x: Array, mask: Array, axis: int) -> Array:
    """The maximum along an axis of the elements in a mask; the gradient goes to the first of equal values."""
    return jnp.max(jnp.where(mask, x, jnp.asarray(-jnp.inf, x.dtype)), axis)


def _masked_maximum_forward(x: Array, mask: Array, axis: int) -> tuple[Array, tuple[Array, Array]]:
    return _masked_maximum(x, mask, axis), (x, mask)


def _masked_maximum_backward(axis: int, saved: Array, g: Array) -> tuple[Array, None]:
    x, mask = saved
    first = jnp.argmax(jnp.where(mask, x, jnp.asarray(-jnp.inf, x.dtype)), axis)
    is_first = jax.nn.one_hot(first, x.shape[axis], dtype=bool, axis=axis)
    return jnp.where(is_first, jnp.expand_dims(g, axis), 0), None


_masked_maximum.defvjp(_masked_maximum_forward, _masked_maximum_backward)


__all__ = ["AVERAGE", "MAX", "RECTIFIED_POOLING", "Pooling", "ROIPooling", "Unpooling"]
