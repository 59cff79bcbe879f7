"""Convolution, and the length of sequences after a convolution along the sequence axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from math import prod

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array
from ..engine.convolutions.rewriting import LARGEST_FILTERS
from ..engine.lower.values import Context, Traced
from ..engine.native.program import Operation, border_of
from ..engine.plan.parts import resolve
from ..engine.xla.materialize import materialized
from ..engine.xla.platform import computes_convolutions, lowering
from ..graph.build import Spec
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, INFERRED, Shape, is_known, is_unknown, matches, merge_dimension
from ..graph.variable import Edge, Leaf, infer_shape
from ._window import Window, channels_last, per_axis, place, value_of
from .base import Attrs, Bool, Primitive, ShapeOf, Size, primitive

MAX_PIECES = 64  # more of them would take too long to compile
PIECE_CHANNELS = 32  # of joined groups
FEWEST_CHANNELS = 8  # of a 3-d convolution with strides, for the library in C: its gradient gains nothing by fewer


class _Convolving(Primitive):
    """The attributes and geometry of convolutions and of the lengths of convolved sequences.

    Shapes in the attributes are row-major as the operand's; autoPadding and sharing are in reverse order, as in files.
    A single value for all axes is expanded when the operand's shape is known.
    """

    attributes = {
        "kernelShape": ShapeOf((0,)), "strides": ShapeOf((1,)), "sharing": Bool.vector([True]),
        "autoPadding": Bool.vector([True]), "lowerPad": ShapeOf((0,)), "upperPad": ShapeOf((0,)),
        "dilation": ShapeOf((1,)), "transpose": Bool(False), "outputShape": ShapeOf((0,)),
        "maxTempMemSizeInSamples": Size(0), "groups": Size(1), "sequential": Bool(False),
    }

    def fail(self, inputs: Sequence[Edge], reason: str, fix: str = "") -> ShapeError:
        """The error for operands or options that do not fit."""
        return ShapeError(explain(f"{self.name}: {reason}", {"kernel": inputs[0], "operand": inputs[1]}, fix))

    def expand_options(self, inputs: Sequence[Edge], attrs: Attrs, shape: Shape) -> int:
        """Infer the kernel's channels, and expand the options to each axis of an operand of this shape.

        Returns the number of the kernel's axes before those of the window: 0 (one filter) or 1. As in CNTK it may be 2
        along sequences, whose steps are an open axis, if the second one is to be inferred: that of channels which the
        operand lacks. The shape is known, but not the kernel, so the convolution cannot be evaluated.
        """
        kernel, rank = inputs[0], len(shape)
        leading = len(kernel.shape) - rank
        lacks_channels = leading == 2 and kernel.shape[1] == INFERRED and rank > 1 and shape[1] < 0
        if leading not in (0, 1) and not lacks_channels:
            raise self.fail(
                inputs, f"the rank of the kernel is {len(kernel.shape)}, but that of the operand {rank}",
                f"the kernel needs {rank} axes (channels and window), or one more before them for the filters; or "
                f"reshape the operand to {len(kernel.shape) - 1} axes, [channels, *window]",
            )
        if 0 in kernel.shape:
            raise self.fail(inputs, "the kernel has an axis of size 0", "give sizes of at least 1")
        transpose, channel = attrs["transpose"], shape[0]
        aligned = transpose and attrs["outputShape"] == (0,)
        if lacks_channels:
            attrs["autoPadding"] = attrs["autoPadding"][:rank]  # without that of the channels, which is the last
        elif isinstance(kernel, Leaf) and kernel.has_inferred:
            aligned = True
            at = 0 if transpose else leading
            if kernel.shape[at] == INFERRED and channel >= 0:
                channels = channel if transpose else channel // attrs["groups"]
                infer_shape(kernel, (*kernel.shape[:at], channels, *kernel.shape[at + 1 :]))
        of_channels = (max(channel, 1), False, 1) if aligned else (None, None, None)
        attrs["kernelShape"] = kernel.shape[leading:]
        while len(attrs["dilation"]) > rank and attrs["dilation"][0] == 1:  # MMdnn includes the filters
            attrs["dilation"] = attrs["dilation"][1:]
        try:
            attrs["strides"] = per_axis(attrs["strides"], rank, of_channels[0])
            attrs["autoPadding"] = list(per_axis(attrs["autoPadding"][::-1], rank, of_channels[1]))[::-1]
            attrs["dilation"] = per_axis(attrs["dilation"], rank, of_channels[2])
            attrs["sharing"] = list(per_axis(attrs["sharing"][::-1], rank))[::-1]
            for name in ("lowerPad", "upperPad"):
                attrs[name] = per_axis(attrs[name], rank)
        except ValueError as e:
            reason = f"strides, padding or another option has {e}"
            raise self.fail(inputs, reason, "give one value for each axis") from None
        return leading

    @staticmethod
    def windows(attrs: Attrs, kernel: Shape, shape: Shape) -> list[Window]:
        """The window along each axis of an operand; `kernel` holds the sizes."""
        options = zip(
            shape, kernel, attrs["strides"], attrs["dilation"], reversed(attrs["autoPadding"]), attrs["lowerPad"],
            attrs["upperPad"], strict=True,
        )
        return [place(n, k, s, d, auto, False, low, high) for n, k, s, d, auto, low, high in options]

    @staticmethod
    def transposed_lengths(attrs: Attrs, kernel: Shape, shape: Shape) -> Shape:
        """The spatial lengths that windows at all positions of `shape` cover: those of a transposed convolution."""
        options = zip(
            shape, kernel, attrs["strides"], attrs["dilation"], reversed(attrs["autoPadding"]), attrs["lowerPad"],
            attrs["upperPad"], strict=True,
        )
        return tuple(
            n if n < 0 else (n - 1) * s + (1 if auto else (k - 1) * d + 1 - low - high)
            for n, k, s, d, auto, low, high in options
        )[1:]


@primitive("Convolution", 33)
class Convolution(_Convolving):
    """The inner products of filters with the windows of a sample; transposed, the sum of filters scaled by the sample.

    Shapes: kernel [O, C / groups, *window], x [C, *spatial] -> [O, *positions]; a kernel [C, *window] is a single
    filter. Windows may also move along the channels: each filter then gives as many channels as there are positions.
    Transposed: kernel [C, O, *window], x [C, *spatial] -> [O, *outputShape].
    Source: CNTK 2.7; the choice of lowerings was measured with jax 0.10 on two cores of an AMD EPYC and an Intel Xeon.
    """

    packed = True
    weight_operand = 0
    autocasts = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[O, *positions]; infers the kernel's channels."""
        kernel, x = inputs
        if kernel.dynamic_axes:
            raise self.fail(inputs, "the kernel has dynamic axes", "give a parameter or constant as the kernel")
        if x.shape[:1] == (INFERRED,) and INFERRED in kernel.shape:
            attrs = dict(attrs)  # options are expanded when the channels are known
        leading = self.expand_options(inputs, attrs, x.shape)
        shape = self._transposed_shape(inputs, attrs) if attrs["transpose"] else self._shape(inputs, attrs, leading)
        return Spec(shape, axes=x.dynamic_axes)

    def _shape(self, inputs: Sequence[Edge], attrs: Attrs, leading: int) -> Shape:
        kernel, x = inputs
        self._check_options(inputs, attrs, leading)
        windows = self._checked_windows(inputs, attrs, leading)
        groups, filters = attrs["groups"], kernel.shape[0] if leading else 1
        if groups > 1:
            channels = x.shape[0] if kernel.shape[leading] == INFERRED else kernel.shape[leading] * groups
            if filters % groups or channels != x.shape[0]:
                raise self.fail(
                    inputs, f"{groups} groups do not divide {filters} filters on {x.shape[0]} channels",
                    "the kernel's shape has to be [filters, channels / groups, *window], filters divisible by groups",
                )
            # CNTK reports this shape, but computes grouped convolutions only at one position along the channels.
            positions = windows[0].count if attrs["autoPadding"][-1] else 1
            return (filters * positions, *(w.count for w in windows[1:]))
        if filters == INFERRED or windows[0].count < 0:
            return (INFERRED, *(w.count for w in windows[1:]))
        return (filters * windows[0].count, *(w.count for w in windows[1:]))

    def _check_options(self, inputs: Sequence[Edge], attrs: Attrs, leading: int) -> None:
        kernel, x = inputs
        groups = attrs["groups"]
        channels, *window = kernel.shape[leading:]
        if INFERRED in window:
            raise self.fail(
                inputs, f"only the channels of a kernel can be inferred, not the sizes of its window {tuple(window)}",
                "give the window one size for each axis of the operand behind its channels",
            )
        if channels == INFERRED and x.shape[0] == FREE:
            raise self.fail(
                inputs, "a free dimension has no size to infer the channels of the kernel from",
                "give the number of channels of the operand",
            )
        if min(attrs["strides"], default=1) < 1 or min(attrs["dilation"], default=1) < 1:
            raise self.fail(inputs, f"strides {attrs['strides']} and dilation {attrs['dilation']} have to be positive")
        if groups < 1:
            raise self.fail(inputs, f"groups = {groups} has to be positive")
        if 0 <= x.shape[0] < kernel.shape[leading]:
            raise self.fail(
                inputs, f"the kernel has {kernel.shape[leading]} channels, but the operand {x.shape[0]}",
                "the kernel's shape has to be [filters, channels, *window]",
            )

    def _checked_windows(self, inputs: Sequence[Edge], attrs: Attrs, leading: int) -> list[Window]:
        kernel, x = inputs
        windows = self.windows(attrs, kernel.shape[leading:], x.shape)
        for axis, (n, window, shared) in enumerate(zip(x.shape, windows, attrs["sharing"][::-1], strict=True)):
            if n >= 0 and window.count < 1:
                channels_last = axis == 2 and len(x.shape) == 3 and n in (1, 3, 4)
                raise self.fail(
                    inputs, f"the window is larger than the operand: {window.extent} against {n} along axis {axis}",
                    "make the window smaller, or pad with auto_padding" + channels_last * (
                        f"; if the {n} are the channels of an image, declare and feed it as [channels x height x width]"
                    ),
                )
            if window.count > 1 and not shared:
                reason = f"each position along axis {axis} would need its own kernel (sharing=False)"
                raise self.fail(inputs, reason, "leave out sharing")
        return windows

    def _transposed_shape(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        kernel, x = inputs
        filters = (1,) * (len(x.shape) + 1 - len(kernel.shape)) + kernel.shape
        if merge_dimension(filters[0], x.shape[0]) is None:
            raise self.fail(
                inputs, "the first dimension of the kernel is not that of the operand's channels",
                "its shape has to be [channels of the operand, channels of the output, *window]",
            )
        shape = attrs["outputShape"]
        if shape == (0,):
            return (filters[1], *self.transposed_lengths(attrs, filters[1:], x.shape))
        if len(shape) != len(x.shape):
            raise self.fail(inputs, f"output_shape {shape} needs {len(x.shape)} axes: channels and window")
        counts = [w.count for w in self.windows(attrs, filters[1:], shape)]
        expected = (counts[0] * filters[0], *counts[1:])
        if not matches(x.shape, expected):
            raise self.fail(inputs, f"convolving output_shape {shape} gives {expected}, not the operand's shape")
        return shape

    def by_steps(self, node: Node) -> Operation | None:
        """Along one or two axes, of all channels, with filters whose cells are neighbours along the last axis."""
        (kernel, x), attrs = node.node_inputs, node.node_attributes
        shape = kernel.shape[len(kernel.shape) - len(x.shape) :]
        if attrs["transpose"] or attrs["groups"] > 1 or len(x.shape) not in (2, 3) or not is_known(x.shape):
            return None
        channels, *windows = self.windows(attrs, shape, x.shape)
        if not channels.is_whole or (windows[-1].dilation > 1 and windows[-1].size > 1):
            return None
        key = resolve(kernel)
        return Operation(lambda writer, w, value: writer.convolution(
            key, writer.image(value, x.shape), w.reshape(-1, *shape), windows
        ), border_of(windows))

    def lower_packed(self, ctx: Context, attrs: Attrs, kernel: Traced, x: Traced) -> Traced:
        """XLA's convolution, channels last."""
        w, data = ctx.array(kernel), channels_last(ctx, x)
        shape = (data.shape[-1], *data.shape[1:-1])
        if w.ndim == len(shape):
            w = w[None]
        if attrs["transpose"]:
            out = attrs["outputShape"][1:] or self.transposed_lengths(attrs, w.shape[1:], shape)
            result = _transposed(data, w, tuple(self.windows(attrs, w.shape[1:], (w.shape[1], *out))[1:]))
        else:
            windows = self.windows(attrs, w.shape[1:], shape)
            if attrs["groups"] > 1 and attrs["autoPadding"][-1] and windows[0].count > 1:
                raise RuntimeError(f"{ctx.node!r}: groups of padded channels; give auto_padding=[False, True, ...]")
            covers_channels = attrs["groups"] > 1 or windows[0].is_whole
            result = (
                _convolved(data, w, windows[1:], attrs["groups"]) if covers_channels else _sliding(data, w, windows)
            )
        return value_of(ctx, result, x)


def _convolved(x: Array, w: Array, windows: Sequence[Window], groups: int = 1) -> Array:
    """[n, *spatial, C] with filters [O, C / groups, *window] -> [n, *positions, O]."""
    if groups > 1:
        return _grouped(x, w, windows, groups)
    if all(k.size == 1 and k.before == 0 and k.after <= 0 for k in windows):
        # With windows of one cell this is a product: the gradient with strides takes 0.3 instead of 0.9 ms.
        x = x[(slice(None), *(k.slice_of(0) for k in windows))]
        return x @ w.reshape(w.shape[:2]).T
    if all(k.count == 1 and k.dilation == 1 for k in windows):
        return _at_one_position(x, w, windows)
    if len(windows) > 2 and lowering().convolutions_by_planes and not _is_for_library(x, w, windows):
        return _by_planes(x, w, windows)
    return _xla_convolution(x, w, windows)


def _is_for_library(x: Array, w: Array, windows: Sequence[Window]) -> bool:
    """Whether the library in C computes a convolution and its gradients: see `engine/convolutions/rewriting.py`."""
    has_strides, is_dilated = any(k.stride > 1 for k in windows), any(k.dilation > 1 for k in windows)
    is_suited = not has_strides or (not is_dilated and x.shape[-1] >= FEWEST_CHANNELS)
    is_small = w.size <= LARGEST_FILTERS and not _is_smaller(x.shape[1:-1], w.shape[2:])
    return computes_convolutions("native") and x.dtype == w.dtype == jnp.float32 and is_suited and is_small


def _by_planes(x: Array, w: Array, windows: Sequence[Window]) -> Array:
    """A convolution of planes, with the cells of the window's first axis as channels.

    XLA:CPU is slow in three dimensions: [4, 16, 16, 16, 16] with 16 filters of 3x3x3 takes 23 ms, and 62 for the
    gradients; this takes 2.5 and 6.
    """
    first, *plane = windows
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (first.before, first.after, 0), *[(0, 0, 0)] * (x.ndim - 2)])
    planes = jnp.concatenate([x[:, first.slice_of(cell)] for cell in range(first.size)], -1)
    result = _convolved(planes.reshape(-1, *planes.shape[2:]), jnp.concatenate(jnp.moveaxis(w, 2, 0), 1), plane)
    return result.reshape(x.shape[0], first.count, *result.shape[1:])


def _at_one_position(x: Array, w: Array, windows: Sequence[Window]) -> Array:
    """A product of the cells that the window covers: with gradients, 256 filters of 7x7 on [16, 7, 7, 64] take 1.2 ms.

    As a convolution they take 12, since its gradient is one of a single cell.
    """
    cells = [slice(max(-k.before, 0), n - max(-k.after, 0)) for n, k in zip(x.shape[1:-1], windows, strict=True)]
    covered = [slice(max(k.before, 0), k.size - max(k.after, 0)) for k in windows]
    x, w = jnp.moveaxis(x[(slice(None), *cells)], -1, 1), w[(slice(None), slice(None), *covered)]
    result = x.reshape(x.shape[0], -1) @ w.reshape(w.shape[0], -1).T
    return result.reshape(x.shape[0], *[1] * len(windows), w.shape[0])


def _xla_convolution(x: Array, w: Array, windows: Sequence[Window], groups: int = 1) -> Array:
    x, positions, cells = materialized(x), [k.count for k in windows], [k.size for k in windows]
    is_at_few = groups == 1 and lowering().padded_convolutions and _is_smaller(positions, cells)
    if is_at_few and min(positions) > 0:  # sequences may be shorter than the window
        return _at_few_positions(x, w, tuple(windows))
    return _at_any_positions(x, w, windows, groups)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _at_few_positions(x: Array, w: Array, windows: tuple[Window, ...]) -> Array:
    """A convolution with fewer positions than cells in a window.

    The gradient of its operand is a convolution of few cells, which XLA:CPU is slow at (`_padded_convolution`).
    """
    return _at_any_positions(x, w, windows)


def _few_positions_forward(x: Array, w: Array, windows: tuple[Window, ...]) -> tuple[Array, tuple[Array, Array]]:
    return _at_any_positions(x, w, windows), (x, w)


def _few_positions_backward(
    windows: tuple[Window, ...], saved: tuple[Array, Array], d: Array
) -> tuple[Array, Array]:
    x, w = saved
    _, gradient = jax.vjp(lambda filters: _at_any_positions(x, filters, windows), w)
    return _transposed(d, w, windows), *gradient(d)


_at_few_positions.defvjp(_few_positions_forward, _few_positions_backward)


def _at_any_positions(x: Array, w: Array, windows: Sequence[Window], groups: int = 1) -> Array:
    # Cells after the last window need not be cut off, and a symbolic number of them could not be.
    padding = [(k.before, k.after if isinstance(k.after, int) or k.after > 0 else 0) for k in windows]
    return _padded_convolution(
        x, _window_first(w), padding, strides=[k.stride for k in windows],
        dilation=[k.dilation for k in windows], groups=groups,
    )


def _padded_convolution(
    x: Array, w: Array, padding: Sequence[tuple[int, int]], strides: Sequence[int], dilation: Sequence[int],
    groups: int = 1, gaps: Sequence[int] | None = None,
) -> Array:
    """XLA's convolution. `gaps`: the strides of a transposed one.

    Where the filters have more cells than the operand, XLA exchanges the two, and XLA:CPU has no library for what that
    gives: with gradients, 128 filters of 5x5 with strides of 2 on [16, 7, 7, 128] take 66 ms, and 1,450 where LLVM does
    not optimize. With the padding in the operand, which then has more cells, they take 7 and 11.
    """
    gaps = gaps or [1] * len(padding)
    if lowering().padded_convolutions and _is_smaller(x.shape[1:-1], w.shape[: len(padding)]):
        edges = [(before, after, gap - 1) for (before, after), gap in zip(padding, gaps, strict=True)]
        x = materialized(lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *edges, (0, 0, 0)]))
        padding, gaps = [(0, 0)] * len(padding), [1] * len(padding)
    return lax.conv_general_dilated(
        x, w, strides, padding, lhs_dilation=gaps, rhs_dilation=dilation, dimension_numbers=_dimensions(x.ndim),
        feature_group_count=groups,
    )


def _is_smaller(cells: Sequence[int], window: Sequence[int]) -> bool:
    """Whether an image, or places of a window in it, are fewer than the cells of the window; not if unknown yet."""
    return all(isinstance(n, int) for n in cells) and prod(cells) < prod(window)


def _grouped(x: Array, w: Array, windows: Sequence[Window], groups: int) -> Array:
    """On a CPU by pieces: XLA takes 327 ms for the gradients of four groups on [8, 32, 32, 64], each by itself 7.

    Groups of few channels are joined to one piece, whose filters are zero on the channels of other groups: with 32
    groups of two channels a fifth of the processor time, and a third with the gradients. So infinity in one group's
    channels is NaN in the results of its neighbours. Depthwise filters (one channel per group) are summed cell by cell
    of the window: 3.7 instead of 20 ms.
    """
    if lowering().native_groups:
        return _xla_convolution(x, w, windows, groups)
    cells = prod(k.size for k in windows)
    if w.shape[1] == 1 and cells <= MAX_PIECES:
        if w.shape[0] > groups:
            x = jnp.repeat(x, w.shape[0] // groups, -1)
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((k.before, k.after, 0) for k in windows), (0, 0, 0)])
        terms = []
        for cell in product(*(range(k.size) for k in windows)):
            slices = (k.slice_of(i) for i, k in zip(cell, windows, strict=True))
            terms.append(x[(slice(None), *slices)] * w[(slice(None), 0, *cell)])
        return reduce(jnp.add, terms)
    joined = max(n for n in range(1, groups + 1) if groups % n == 0 and (n == 1 or n * w.shape[1] <= PIECE_CHANNELS))
    w, groups = _of_joined_groups(w, groups, joined), groups // joined
    if groups <= MAX_PIECES:
        pairs = zip(jnp.split(x, groups, -1), jnp.split(w, groups), strict=True)
        return jnp.concatenate([_convolved(part, filters, windows) for part, filters in pairs], -1)
    return _xla_convolution(x, w, windows, groups)


def _of_joined_groups(w: Array, groups: int, joined: int) -> Array:
    """The filters of so many neighbouring groups on the channels of all of them, zero on those of the others.

    Shapes: [O, C / groups, *window] -> [O, joined * C / groups, *window].
    """
    if joined == 1:
        return w
    own = jnp.eye(joined, dtype=bool).reshape(joined, 1, joined, *(1,) * (w.ndim - 1))
    filters = w.reshape(groups // joined, joined, w.shape[0] // groups, 1, *w.shape[1:])
    return jnp.where(own, filters, 0).reshape(w.shape[0], joined * w.shape[1], *w.shape[2:])


def _dimensions(rank: int) -> lax.ConvDimensionNumbers:
    """Channels last for the operand and the result, the window first for the kernel."""
    data = (0, rank - 1, *range(1, rank - 1))
    return lax.ConvDimensionNumbers(data, (rank - 1, rank - 2, *range(rank - 2)), data)


def _window_first(w: Array) -> Array:
    """[O, C, *window] -> [*window, C, O].

    In a loop XLA:CPU takes 1.5 s if it has to transpose the kernel, and 0.03 with this: four steps of 160 filters of
    3x3x40 on [4, 40, 40, 40].
    """
    return jnp.moveaxis(w, (0, 1), (-1, -2))


def _sliding(x: Array, w: Array, windows: Sequence[Window]) -> Array:
    """Windows that move along the channels too: [n, *spatial, C], [O, *window] -> [n, *positions, O * positions]."""
    result = _convolved(jnp.moveaxis(x, -1, 1)[..., None], w[:, None], windows)
    result = jnp.moveaxis(result, 1, -1)
    return result.reshape(*result.shape[:-2], -1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _transposed(x: Array, w: Array, windows: tuple[Window, ...]) -> Array:
    """The transpose of a convolution: [n, *positions, C], [C, O, *window] -> [n, *spatial, O].

    Its gradients are those of the convolution, with what is given for the result as the operand: XLA:CPU takes 119 ms
    for the gradients of what stands here, for 2x2 with strides of 2 on [16, 16, 16, 64], and 10 for these.
    """
    strided, dilated = any(k.stride > 1 for k in windows), any(k.dilation > 1 for k in windows)
    if lowering().transposed_by_phases and strided and not dilated and (
        len(windows) > 2 or all(k.size % k.stride == 0 for k in windows)
    ):
        return _by_phases(x, w, windows)
    padding = [(k.extent - 1 - k.before, k.extent - 1 - k.after) for k in windows]
    return _padded_convolution(
        x, _window_first(jnp.flip(w.swapaxes(0, 1), range(2, w.ndim))), padding, strides=[1] * len(windows),
        dilation=[k.dilation for k in windows], gaps=[k.stride for k in windows],
    )


def _transposed_forward(x: Array, w: Array, windows: tuple[Window, ...]) -> tuple[Array, tuple[Array, Array]]:
    return _transposed(x, w, windows), (x, w)


def _transposed_backward(windows: tuple[Window, ...], saved: tuple[Array, Array], d: Array) -> tuple[Array, Array]:
    x, w = saved
    dx, gradient = jax.vjp(lambda filters: _convolved(d, filters, windows), w)
    return dx, *gradient(x)


_transposed.defvjp(_transposed_forward, _transposed_backward)


def _by_phases(x: Array, w: Array, windows: Sequence[Window]) -> Array:
    """A transposed convolution whose results at `stride` neighbouring places are channels of one convolution.

    The result at place stride * t + r sums x[t - q] * w[stride * q + r] over q. With windows as large as the strides
    this is one product: 1.4 instead of 1.9 ms in the case above, and 0.3 instead of 10.8 for 2x2x2 on [2, 6, 6, 6, 16].
    """
    rank, count = len(windows), [-(-k.size // k.stride) for k in windows]
    missing = [(0, n * k.stride - k.size) for n, k in zip(count, windows, strict=True)]
    w = jnp.pad(w, [(0, 0), (0, 0), *missing])
    w = w.reshape(*w.shape[:2], *(size for n, k in zip(count, windows, strict=True) for size in (n, k.stride)))
    w = w.transpose(*range(3, w.ndim, 2), 1, 0, *range(2, w.ndim, 2))  # [*stride, O, C, *count]
    channels, filters = w.shape[rank], jnp.flip(w.reshape(-1, *w.shape[rank + 1 :]), range(2, rank + 2))
    whole = [Window(n, 1, 1, n - 1, n - 1, p + n - 1) for n, p in zip(count, x.shape[1:-1], strict=True)]
    y = _convolved(x, filters, whole)
    y = y.reshape(*y.shape[:-1], *(k.stride for k in windows), channels)
    y = y.transpose(0, *(axis for i in range(rank) for axis in (1 + i, 1 + rank + i)), 2 * rank + 1)
    y = y.reshape(x.shape[0], *(k.count * v.stride for k, v in zip(whole, windows, strict=True)), channels)
    cut = [(-k.before, -end - k.after, 0) for (_, end), k in zip(missing, windows, strict=True)]
    return lax.pad(y, jnp.zeros((), y.dtype), [(0, 0, 0), *cut, (0, 0, 0)])


@primitive("ConvolutionSequenceShape", 97)
class ConvolutionSequenceShape(_Convolving):
    """The number of steps of each sequence after a convolution along the sequence axis.

    Shapes: kernel [O, C, steps, *window], x [C, *spatial] with a sequence axis -> [1] for each sequence.
    Source: CNTK 2.7.
    """

    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """One number per sequence; as in the convolution itself, the step axis comes after the channels."""
        x = inputs[1]
        axes = tuple(a for a in x.dynamic_axes if not a.is_sequence_axis)
        if is_unknown(x.shape):
            return Spec(x.shape, axes=axes)
        self.expand_options(inputs, attrs, (*x.shape[:1], INFERRED, *x.shape[1:]))
        return Spec((1,), axes=axes)

    def lower_packed(self, ctx: Context, attrs: Attrs, kernel: Traced, x: Traced) -> Traced:
        """The arithmetic of `place`, on the lengths of all sequences."""
        length = ctx.layout(x.axes).length
        size, stride, dilation = (attrs[name][1] for name in ("kernelShape", "strides", "dilation"))
        auto = attrs["autoPadding"][-2]
        span = length - 1 if auto else length + attrs["lowerPad"][1] + attrs["upperPad"][1] - (size - 1) * dilation - 1
        count = jnp.maximum(span // stride + 1, 0)
        axes = tuple(a for a in x.axes if not a.is_sequence_axis)
        return Traced(count.astype(kernel.data.dtype)[:, None], axes)


__all__ = ["Convolution", "ConvolutionSequenceShape"]
