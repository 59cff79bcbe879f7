"""Reductions over static axes and over the samples of a minibatch, softmax and hardmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod, sqrt
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array
from ..engine.data.dimensions import expand_to, flat
from ..engine.data.layout import Layout
from ..engine.lower.values import Axes, Context, Traced
from ..engine.plan.padding import ANYTHING, FAR, PaddedOperand
from ..engine.xla.materialize import materialized, stores_values
from ..engine.xla.platform import lowering
from ..engine.xla.row_sums import prefers_matmul_sum
from ..graph.axis import ALL_AXES, ALL_STATIC, BATCH, SEQUENCE, Axis
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, explain
from ..graph.function import Node
from ..graph.shape import FREE, Shape, is_known
from ..graph.variable import Edge
from ._axes import position, stored
from ._indices import check_results
from .base import Attrs, AxisOf, Bool, Primitive, String, primitive

LONG_AXIS = 128  # from which argmax takes longer on a CPU than two of about the square root

Find: TypeAlias = Callable[..., Array]  # jnp.max, jnp.argmin, segment_max and the like


def _sums_long_rows(x: Array, axes: tuple[int, ...]) -> bool:
    """True if a reduction over the leading axes adds up rows that are long."""
    return axes == tuple(range(len(axes))) and prefers_matmul_sum(prod(x.shape[len(axes):]))


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    if not _sums_long_rows(x, axes):
        return jnp.sum(x, axis=axes, keepdims=True)
    kept, wide = x.shape[len(axes):], jnp.promote_types(x.dtype, jnp.float32)
    rows = x.reshape(-1, prod(kept)).astype(wide)
    total = jnp.matmul(jnp.ones(len(rows), wide), rows, precision="highest")
    return total.astype(x.dtype).reshape(*(1,) * len(axes), *kept)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    if not _sums_long_rows(x, axes):
        return jnp.mean(x, axis=axes, keepdims=True)
    return _sum(x, axes) / np.asarray(prod(x.shape[: len(axes)]), x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _extreme(x: Array, find: Find, axes: tuple[int, ...]) -> Array:
    """max or min. Each of several largest elements gets the whole gradient, as in CNTK.

    They are found by comparing, so they have to be stored: computed again, they may be rounded differently, and none
    might equal the maximum. Where nothing can be stored, the first largest element gets the gradient in any case.
    """
    if not _sums_long_rows(x, axes):
        return find(x, axis=axes, keepdims=True)
    larger = jnp.maximum if find is jnp.max else jnp.minimum
    rows = x.reshape(-1, *x.shape[len(axes):])
    extreme = lax.scan(lambda largest, row: (larger(largest, row), None), rows[0], rows)[0]
    return extreme.reshape(*(1,) * len(axes), *extreme.shape)


@_extreme.defjvp
def _(find: Find, axes: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    x, dx = materialized(primals[0]), tangents[0]
    y = _extreme(x, find, axes)
    is_extreme = x == y
    if not stores_values():
        is_extreme |= _is_first(x if find is jnp.max else -x, axes)
    return y, jnp.sum(jnp.where(is_extreme, dx, jnp.zeros((), dx.dtype)), axis=axes, keepdims=True)


def _is_first(x: Array, axes: tuple[int, ...]) -> Array:
    """True at the first largest element along axes."""
    last = tuple(range(x.ndim - len(axes), x.ndim))
    rows = jnp.moveaxis(x, axes, last)
    flat = rows.reshape(*rows.shape[: last[0]], -1)
    is_first = jnp.arange(flat.shape[-1]) == jnp.expand_dims(_argmax(flat, -1), -1)
    return jnp.moveaxis(is_first.reshape(rows.shape), last, axes)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _log_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """log(sum(exp(x))). Its gradient is computed from x and the result, so that exp(x) is not saved."""
    largest = _extreme(x, jnp.max, axes)
    largest = jnp.where(jnp.isfinite(largest), largest, jnp.zeros((), x.dtype))
    return jnp.log(_sum(jnp.exp(x - largest), axes)) + largest


@_log_sum.defjvp
def _(axes: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    y = _log_sum(x, axes)
    return y, jnp.sum(dx * jnp.exp(x - y), axis=axes, keepdims=True)


# name: computation that keeps dimensions, and the neutral value that padding is replaced by
_REDUCTIONS: dict[str, tuple[Callable[[Array, tuple[int, ...]], Array], float]] = {
    "Sum": (_sum, 0),
    "Mean": (_mean, 0),
    "Max": (lambda x, axes: _extreme(x, jnp.max, axes), float("-inf")),
    "Min": (lambda x, axes: _extreme(x, jnp.min, axes), float("inf")),
    "Prod": (lambda x, axes: jnp.prod(x, axis=axes, keepdims=True), 1),
    "LogSum": (_log_sum, float("-inf")),
    "Argmax": (lambda x, axes: _index(_argmax, x, axes), float("-inf")),
    "Argmin": (lambda x, axes: _index(_argmin, x, axes), float("inf")),
}
_INDICES = "Argmax", "Argmin"


_BY_NUMPY: dict[str, Callable[..., Any]] = {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}
_MOST_BY_NUMPY = 4096  # elements; NumPy takes 1 to 4 µs for them


STEPWISE = ("Sum", "Mean", "Max", "Min", "LogSum")  # the reductions that `over_steps` computes


def over_steps(reduction: str, x: Array, layout: Layout) -> Array:
    """A reduction over the steps of each sequence, padding left out.

    A sequence without steps, which may be one that pads the batch, gives 0: from infinity, weights that use the result
    would get NaN as their gradient.

    Shapes: x [time, rows, *shape] -> [size, *shape].
    """
    y = _over_steps(reduction, x, layout)
    if layout.full or reduction in ("Sum", "Mean"):
        return y
    return jnp.where(expand_to(layout.length > 0, y.ndim), y, jnp.zeros((), y.dtype))


def _over_steps(reduction: str, x: Array, layout: Layout) -> Array:
    if reduction == "Mean":
        length = jnp.maximum(layout.length, 1).astype(jnp.promote_types(x.dtype, jnp.float32))
        total = over_steps("Sum", x, layout)
        return total * expand_to((1 / length).astype(x.dtype), total.ndim)
    if not layout.simple:
        return _SEGMENTS[reduction](flat(x), layout.segment_ids(), layout.size)
    compute, neutral = _REDUCTIONS[reduction]
    if not layout.full:
        x = jnp.where(expand_to(layout.mask, x.ndim), x, neutral)
    return compute(x, (0,))[0]


def _segment_sum(x: Array, ids: Array, n: int) -> Array:
    return jax.ops.segment_sum(x.astype(jnp.promote_types(x.dtype, jnp.float32)), ids, n).astype(x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _segment_extreme(x: Array, ids: Array, n: int, find: Find) -> Array:
    return find(x, ids, n)


@_segment_extreme.defjvp
def _(
    n: int, find: Find, primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    x, ids, dx = materialized(primals[0]), primals[1], tangents[0]
    y = _segment_extreme(x, ids, n, find)
    return y, _segment_sum(jnp.where(x == y[ids], dx, jnp.zeros((), dx.dtype)), ids, n)


def _segment_log_sum(x: Array, ids: Array, n: int) -> Array:
    largest = lax.stop_gradient(jax.ops.segment_max(x, ids, n))
    largest = jnp.where(jnp.isfinite(largest), largest, jnp.zeros((), x.dtype))
    return jnp.log(_segment_sum(jnp.exp(x - largest[ids]), ids, n)) + largest


_SEGMENTS: dict[str, Callable[[Array, Array, int], Array]] = {
    "Sum": _segment_sum,
    "Max": lambda x, ids, n: _segment_extreme(x, ids, n, jax.ops.segment_max),
    "Min": lambda x, ids, n: _segment_extreme(x, ids, n, jax.ops.segment_min),
    "LogSum": _segment_log_sum,
}


def _argmax(x: Array, axis: int) -> Array:
    """The index of the first largest element.

    Of a long axis first the block with the largest maximum is found, then the element in it. Nothing is compared for
    equality with a maximum, as XLA may round an element differently where it computes it again.
    """
    n = x.shape[axis]
    if n < LONG_AXIS or not lowering().argmax_in_blocks:
        return jnp.argmax(x, axis)
    rows = jnp.moveaxis(lax.stop_gradient(x), axis, -1)
    size = ceil(sqrt(n))
    count, rest = divmod(n, size)
    maxima = jnp.max(rows[..., : n - rest].reshape(*rows.shape[:-1], count, size), -1)
    if rest:
        maxima = jnp.concatenate([maxima, jnp.max(rows[..., n - rest :], -1, keepdims=True)], -1)
    first = size * jnp.argmax(maxima, -1, keepdims=True)
    places = jnp.minimum(first + jnp.arange(size), n - 1)
    return first[..., 0] + jnp.argmax(jnp.take_along_axis(rows, places, -1), -1)


def _argmin(x: Array, axis: int) -> Array:
    return _argmax(-x, axis)


def _index(find: Find, x: Array, axes: tuple[int, ...]) -> Array:
    """The index of the first largest or smallest element, in neighbouring axes flattened."""
    if len(axes) == 1:
        return jnp.expand_dims(find(x, axes[0]), axes[0]).astype(x.dtype)
    first, last = min(axes), max(axes) + 1
    flat = x.reshape(*x.shape[:first], -1, *x.shape[last:])
    index = find(flat, first).astype(x.dtype)
    return index.reshape(*x.shape[:first], *(1,) * len(axes), *x.shape[last:])


@primitive("ReduceElements", 39)
class ReduceElements(Primitive):
    """Reduction over one or several static axes, all of them, the batch or sequence axis, or everything.

    Shapes: a reduced axis becomes 1, or vanishes without `reductionKeepDimensions`; all static axes together, and
            everything, always vanish. Over the batch axis the output has no dynamic axes, over the sequence axis it
            has the batch axis alone.
    Errors: AxisError for an axis that the operand does not have, and for the batch axis of sequences; ShapeError if the
            indices that Argmax and Argmin return are not exact in the type of the operand.
    Source: CNTK 2.7, which has no reduction along the sequence axis.
    """

    attributes = {
        "reductionOpName": String, "axis": AxisOf(None), "axisVec": AxisOf(None).vector,
        "reductionKeepDimensions": Bool(True),
    }
    packed = True
    stepwise = True

    def stops_gradient(self, node: Node) -> bool:
        """Of indices."""
        return node.node_attributes["reductionOpName"] in _INDICES

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Of a reduction of each step by itself."""
        return padding_of_reduction(attrs, operands)

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """Where the padding is neutral for a reduction over the steps."""
        (x,) = operands
        if x.padding is None or not x.reduces_steps(axes_of(attrs)):
            return False
        reduction, value = attrs["reductionOpName"], x.padding
        return (
            (reduction == "Sum" and value == 0)
            or (reduction == "Mean" and value == 0 and x.is_masked)
            or (reduction in ("Max", "LogSum") and value <= -FAR)
            or (reduction == "Min" and value >= FAR)
        )

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """Sums, means and extremes of a few elements over static axes."""
        (x,), attrs = node.node_inputs, node.node_attributes
        reduce, axes = _BY_NUMPY.get(attrs["reductionOpName"]), axes_of(attrs)
        if reduce is None or not is_known(x.shape) or rows * prod(x.shape) > _MOST_BY_NUMPY:
            return None
        if ALL_STATIC in axes:
            return partial(reduce, axis=tuple(range(-len(x.shape), 0)))
        if not all(axis.is_static_axis for axis in axes):
            return None
        places = tuple(axis.static_axis_index() for axis in axes)
        return partial(reduce, axis=places, keepdims=attrs["reductionKeepDimensions"])

    def index_bound(self, node: Node, output: Edge) -> int | None:
        """The number of elements that are compared, of the indices of the largest or smallest."""
        axes, shape = axes_of(node.node_attributes), node.node_inputs[0].shape
        if node.node_attributes["reductionOpName"] not in _INDICES:
            return None
        if ALL_STATIC not in axes:
            if not all(a.is_static_axis for a in axes):
                return None
            shape = tuple(shape[a.static_axis_index()] for a in axes)
        return prod(shape) if is_known(shape) else None

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """Without the reduced axes; the attributes then count axes from the last."""
        (x,) = inputs
        axes = [stored(self.name, axis, x) for axis in axes_of(attrs)]
        if "axis" in attrs:
            attrs["axis"] = axes[0]
        else:
            attrs["axisVec"] = axes
        for axis in axes:
            self._check(axis, x, axes, attrs["reductionOpName"])
        whole = ALL_AXES in axes or ALL_STATIC in axes
        reduced = {position(self.name, a, x) for a in axes if a.is_static_axis}
        if attrs["reductionOpName"] in _INDICES:
            check_results(self.name, tuple(d for i, d in enumerate(x.shape) if whole or i in reduced), x)
        keep = attrs["reductionKeepDimensions"]
        shape: Shape = () if whole else tuple(
            1 if i in reduced else d for i, d in enumerate(x.shape) if keep or i not in reduced
        )
        dynamic = merged_axes(self.name, inputs)
        if BATCH in axes or ALL_AXES in axes:
            dynamic = ()
        elif any(a.is_sequence_axis for a in axes):
            dynamic = (BATCH,)
        return Spec(shape, axes=dynamic)

    def _check(self, axis: Axis, x: Edge, axes: list[Axis], reduction: str) -> None:
        if reduction not in _REDUCTIONS:
            raise AxisError(explain(
                f"{self.name} has no reduction {reduction!r}", {"operand": x}, f"give one of {', '.join(_REDUCTIONS)}"
            ))
        steps = x.sequence_axis
        if axis.is_sequence_axis and (steps is None or axis not in (steps, SEQUENCE)):
            raise AxisError(explain(
                f"{self.name}: the operand has no sequence axis {axis!r}", {"operand": x},
                "give the axis of its input (cntk.Axis.default_dynamic_axis() matches any)",
            ))
        if axis == BATCH and steps is not None and not any(a.is_sequence_axis for a in axes):
            raise AxisError(explain(
                f"{self.name}: sequences cannot be reduced along the batch axis, for they differ in length",
                {"operand": x},
                "reduce over the sequence axis too, or reduce each sequence to one value first (cntk.sequence.last)",
            ))
        if axis == BATCH and not x.dynamic_axes:
            raise AxisError(explain(
                f"{self.name}: the operand has no batch axis to reduce along", {"operand": x},
                "reduce an operand that depends on an input, or only along static axes",
            ))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """The reduction, padding left out."""
        data, lead = ctx.array(x), ctx.lead(x.axes)
        static = _static_dimensions(axes_of(attrs), lead, data.ndim)
        dynamic = _dynamic_reduction(ctx, axes_of(attrs), x)
        dimensions = (*dynamic.dimensions, *sorted(static))
        reduction = attrs["reductionOpName"]
        if not dimensions:  # one element is all that is reduced
            return Traced(jnp.zeros_like(data), x.axes) if reduction in _INDICES else x
        compute, neutral = _REDUCTIONS[reduction]
        if dynamic.axes == (BATCH,) and dynamic.dimensions:
            layout = ctx.layout(x.axes)
            if reduction in STEPWISE:
                data = compute(data, tuple(static)) if static else data
                return _squeezed(attrs, over_steps(reduction, data, layout)[None], dynamic, dimensions)
            if not layout.simple:
                data = layout.at(data, jnp.arange(layout.time)[:, None])
        if dynamic.mask is not None:
            data = jnp.where(expand_to(dynamic.mask, data.ndim), data, neutral)
        y = compute(data, dimensions)
        if dynamic.count is not None and reduction == "Mean":  # it was divided by the number of cells, not of samples
            cells, count = prod(data.shape[i] for i in dynamic.dimensions), dynamic.count
            count = expand_to(count, data.ndim - 1) if count.ndim else count
            wide = jnp.promote_types(data.dtype, jnp.float32)
            y = y * (cells / jnp.maximum(count, 1).astype(wide)).astype(data.dtype)
        if reduction == "Mean" and (extent := ctx.extent(0, data.ndim)) is not None:
            axis, longest = extent
            y = y * (data.shape[axis] / jnp.maximum(longest, 1).astype(y.dtype))
        return _squeezed(attrs, y, dynamic, dimensions)


@dataclass(frozen=True)
class _DynamicReduction:
    """How a reduction treats the leading dimensions of the data.

    `dimensions`: those that it reduces; `mask`: True where there is a sample, and `count`: their number, both None if
    they fill all cells; `axes`: the dynamic axes of the output.
    """

    dimensions: range
    mask: Array | None
    count: Array | None
    axes: Axes


def _dynamic_reduction(ctx: Context, axes: Sequence[Axis], x: Traced) -> _DynamicReduction:
    if {ALL_AXES, BATCH} & set(axes):
        dimensions = range(ctx.lead(x.axes))
        if not ctx.has_padding(x.axes):
            return _DynamicReduction(dimensions, None, None, ())
        return _DynamicReduction(dimensions, ctx.mask(x.axes), ctx.count(x), ())
    if not any(a.is_sequence_axis for a in axes):
        return _DynamicReduction(range(0), None, None, x.axes)
    layout = ctx.layout(x.axes)
    return _DynamicReduction(range(1), jnp.arange(layout.time)[:, None] < layout.length, layout.length, (BATCH,))


def _static_dimensions(axes: Sequence[Axis], lead: int, ndim: int) -> Sequence[int]:
    """The dimensions of the static axes to reduce; `lead` dimensions before them are dynamic."""
    if {ALL_AXES, ALL_STATIC} & set(axes):
        return range(lead, ndim)
    return [ndim + a.static_axis_index() for a in axes if a.is_static_axis]


def _squeezed(attrs: Attrs, y: Array, dynamic: _DynamicReduction, dimensions: tuple[int, ...]) -> Traced:
    """The result without the dimensions that vanish."""
    keep = attrs["reductionKeepDimensions"] and not {ALL_AXES, ALL_STATIC} & set(axes_of(attrs))
    return Traced(jnp.squeeze(y, axis=tuple(dynamic.dimensions) if keep else dimensions), dynamic.axes)


def axes_of(attrs: Attrs) -> list[Axis]:
    """The axes that a reduction reduces, each once; its attributes hold one axis, or several."""
    return [attrs["axis"]] if "axis" in attrs else list(dict.fromkeys(attrs["axisVec"]))


def padding_of_reduction(attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
    """The value in the padding of a reduction of each step by itself; None if steps are reduced, or might be."""
    if any(v.reduces_steps(axes_of(attrs)) for v in operands if v.has_steps):
        return None
    return 0.0 if attrs["reductionOpName"] == "Sum" and any(v.padding == 0 for v in operands) else ANYTHING


class OverAllAxes(Primitive):
    """An operation on the static axes flattened, or on one of them."""

    attributes = {"axis": AxisOf(None)}
    packed = True

    def cache_key(self, node: Node) -> bool:
        """Whether there are samples."""
        return bool(node.node_outputs[0].dynamic_axes)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the operand."""
        (x,) = inputs
        if "axis" in attrs:
            attrs["axis"] = stored(self.name, attrs["axis"], x)
        return x.shape

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """Along the axis, or samples flattened; a value without samples along its last axis, as in CNTK."""
        axis, data = attrs.get("axis", ALL_STATIC), ctx.array(x)
        if axis.is_static_axis:
            return Traced(self.along(data, axis.static_axis_index()), x.axes)
        assert ctx.node is not None
        last = data.ndim if not self.cache_key(ctx.node) else ctx.lead(x.axes) + 1
        flat = data.reshape(*data.shape[: last - 1], -1)
        return Traced(self.along(flat, -1).reshape(data.shape), x.axes)

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """The same."""
        return shapes[0].index(FREE) - len(shapes[0])

    def along(self, x: Array, axis: int) -> Array:
        """The computation along one axis."""
        raise NotImplementedError


def padding_of_softmax(attrs: Attrs, x: PaddedOperand, value: float | None) -> float | None:
    """The value in the padding of a softmax over the steps, if nothing there adds to the sum; ANYTHING over others."""
    if attrs.get("axis", x.step_axis) != x.step_axis:
        return ANYTHING
    return value if x.padding is not None and x.padding <= -FAR else None


@primitive("Softmax", 10)
class Softmax(OverAllAxes):
    """exp(x) / sum(exp(x)) over all static axes together."""

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """0, if nothing in the padding adds to the sum over the steps."""
        return padding_of_softmax(attrs, operands[0], 0.0)

    def along(self, x: Array, axis: int) -> Array:
        """The computation along one axis."""
        return jax.nn.softmax(x, axis=axis)

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """Of vectors."""
        return _softmax_by_numpy if len(node.node_outputs[0].shape) == 1 else None


def _softmax_by_numpy(x: AnyArray) -> AnyArray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@primitive("Hardmax", 11)
class Hardmax(OverAllAxes):
    """1 at the first largest element of a sample, otherwise 0. No gradient."""

    def stops_gradient(self, node: Node) -> bool:
        """Always."""
        return True

    def along(self, x: Array, axis: int) -> Array:
        """The computation along one axis."""
        return jax.nn.one_hot(_argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)
