"""Parts of tensors, and tensors joined from parts: slice, splice, pad, gather, top-k."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array
from ..engine.data.dimensions import pad_rank
from ..engine.lower.values import Context, Traced, common_axes
from ..engine.native.program import Operation
from ..graph.axis import END_STATIC, Axis
from ..graph.build import Spec
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, INFERRED, Shape, broadcast
from ..graph.variable import Edge
from ._axes import position, stored
from ._indices import check_results, check_size
from .base import Attrs, AxisOf, Double, Int, Primitive, Size, StaticSlice, primitive


@primitive("Slice", 14)
class Slice(Primitive):
    """A range along one or several static axes. Indices below 0 count from the end, and an end of 0 is the end.

    A stride below 0 takes the same range from its last element backwards.
    Errors: AxisError for axes that do not exist; ShapeError for an empty range, or one beyond the axis.
    Source: CNTK 2.7.
    """

    attributes = {
        "axis": AxisOf(None), "beginIndex": Int(None), "endIndex": Int(None), "sliceStrides": Int(None),
        "axisVec": AxisOf(None).vector, "beginIndexVec": Int(None).vector, "endIndexVec": Int(None).vector,
        "sliceStridesVec": Int(None).vector,
    }

    def static_slice(self, node: Node) -> StaticSlice | None:
        """The range, if it is along one axis alone."""
        attrs = node.node_attributes
        if "axis" not in attrs:
            return None
        return StaticSlice(attrs["axis"].static_axis_index(), attrs["beginIndex"], attrs.get("sliceStrides", 1))

    def by_steps(self, node: Node) -> Operation | None:
        """A range of vectors, without gaps."""
        (x,), (output,), place = node.node_inputs, node.node_outputs, self.static_slice(node)
        if place is None or place.stride != 1 or len(x.shape) != 1:
            return None
        begin = place.begin % x.shape[0]
        return Operation(lambda writer, value: writer.part(value, begin, output.shape[0]), of_steps=True)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The sizes of the ranges; the attributes then count axes from the end."""
        (x,) = inputs
        several = "axisVec" in attrs
        axes = [stored(self.name, a, x) for a in (attrs["axisVec"] if several else [attrs["axis"]])]
        if any(not a.is_static_axis for a in axes):
            raise AxisError(explain(
                f"{self.name}: only static axes can be sliced", {"operand": x},
                "use cntk.sequence.slice for steps of sequences",
            ))
        if several:
            attrs["axisVec"] = axes
        else:
            attrs["axis"] = axes[0]
        shape = list(x.shape)
        for axis, begin, end, stride in self._ranges(attrs):
            try:
                shape[axis] = _size(shape[axis], begin, end, stride)
            except IndexError as error:
                raise ShapeError(explain(
                    f"{self.name}: {error}", {"operand": x},
                    "give 0 <= begin < end <= size (negative indices count from the end), and a stride other than 0",
                )) from error
        return tuple(shape)

    def _ranges(self, attrs: Attrs) -> list[tuple[int, int, int, int]]:
        if "axisVec" in attrs:
            strides = attrs.get("sliceStridesVec") or [1] * len(attrs["axisVec"])
            ranges = list(zip(
                attrs["axisVec"], attrs["beginIndexVec"], attrs["endIndexVec"], strides, strict=True
            ))
        else:
            ranges = [(attrs["axis"], attrs["beginIndex"], attrs["endIndex"], attrs.get("sliceStrides", 1))]
        return [(axis.static_axis_index(), begin, end, stride) for axis, begin, end, stride in ranges]

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """NumPy's slices."""
        for axis, begin, end, stride in self._ranges(attrs):
            first, last = _bounds(x.shape[axis], begin, end)
            x = lax.slice_in_dim(x, first, last, axis=x.ndim + axis)
            if stride != 1:
                x = x[(..., slice(None, None, stride), *(slice(None),) * (-axis - 1))]
        return x


def _bounds(size: int, begin: int, end: int) -> tuple[int, int]:
    first, last = begin + size if begin < 0 else begin, end + size if end <= 0 else end
    if not 0 <= first < last <= size:
        raise IndexError(f"the range from {begin} to {end} is empty or outside of an axis of size {size}")
    return first, last


def _size(size: int, begin: int, end: int, stride: int) -> int:
    if stride == 0:
        raise IndexError("the stride is 0, but must be a positive or negative number")
    if size >= 0:
        first, last = _bounds(size, begin, end)
    elif 0 <= begin < end or begin < end < 0:
        first, last = begin, end
    else:
        return size
    return -(-(last - first) // abs(stride))


@primitive("Splice", 43)
class Splice(Primitive):
    """Operands concatenated along a static axis; in the other axes they broadcast.

    Shapes: the axis may be a new one before all others.
    Errors: ShapeError if another axis differs; AxisError for an axis that does not exist.
    Source: CNTK 2.7.
    """

    attributes = {"axis": AxisOf(Axis(-1))}
    packed = True
    concatenates = True
    rearranged_operands = slice(None)
    stepwise = True

    def by_steps(self, node: Node) -> Operation | None:
        """Of vectors with dynamic axes."""
        are_vectors = all(v.dynamic_axes and len(v.shape) == 1 for v in node.node_inputs)
        if not are_vectors or len(node.node_outputs[0].shape) > 1:
            return None
        return Operation(lambda writer, *values: writer.joined(values), of_steps=True)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The sum of the sizes along the axis; the attribute then counts it from the end."""
        longest = max(inputs, key=lambda v: len(v.shape))
        rank = len(longest.shape)
        axis = attrs["axis"]
        if axis == END_STATIC:
            axis = Axis(-rank - 1)
        index = axis.static_axis_index() if axis.is_static_axis else rank
        if index >= -rank:  # further to the front are new axes
            index = position(self.name, axis, longest) - rank
        attrs["axis"] = Axis(index)
        rank = max(rank, -index)
        shapes = [(1,) * (rank - len(v.shape)) + v.shape for v in inputs]
        rest = broadcast([(*s[: rank + index], 1, *s[rank + index + 1 :]) for s in shapes])
        if rest is None:
            raise ShapeError(explain(
                f"{self.name}: the operands differ in another axis than the one along which they are joined",
                {f"[{i}]": v for i, v in enumerate(inputs)},
                "give operands whose other axes, counted from the last, are equal or 1",
            ))
        sizes = [s[index] for s in shapes]
        size = FREE if FREE in sizes else INFERRED if INFERRED in sizes else sum(sizes)
        return (*rest[: rank + index], size, *rest[rank + index + 1 :])

    def outputs_of_known(self, known: Sequence[Edge], attrs: Attrs) -> Shape:
        """All but the size along the axis, which may follow from what multiplies the result."""
        attrs = dict(attrs)  # the axis is counted when the ranks of all operands are known
        shape = list(self.outputs(known, attrs))
        shape[attrs["axis"].static_axis_index()] = INFERRED
        return tuple(shape)

    def lower_packed(self, ctx: Context, attrs: Attrs, *operands: Traced) -> Traced:
        """A concatenation; channels stay last if they are last, and the first axis of the result, in all operands."""
        axes = common_axes(operands)
        lead = ctx.lead(axes)
        operands = tuple(ctx.to_axes(v, axes) for v in operands)
        operands = tuple(Traced(ctx.array(v), v.axes) if v.is_sparse else v for v in operands)
        index = attrs["axis"].static_axis_index()
        ranks = [jnp.ndim(v.data) - (lead if v.axes else 0) for v in operands]
        rank = max(*ranks, -index)
        last = all(v.channels_last and r == rank for v, r in zip(operands, ranks, strict=True))
        data = [v.data if last else ctx.array(v) for v in operands]
        at = lead + (rank + index if not last else (rank + index - 1) % rank)  # channels come after the other axes
        data = [pad_rank(d, lead if v.axes else 0, lead + rank) for d, v in zip(data, operands, strict=True)]
        common = jnp.broadcast_shapes(*[(*d.shape[:at], 1, *d.shape[at + 1 :]) for d in data])
        data = [jnp.broadcast_to(d, (*common[:at], d.shape[at], *common[at + 1 :])) for d in data]
        return Traced(jnp.concatenate(data, axis=at), axes, channels_last=last)


@primitive("Pad", 83)
class Pad(Primitive):
    """A border around a tensor: constant (mode 0), or mirrored without (1) or with (2) its outermost elements.

    `paddingHead` and `paddingFoot` list the widths before and after, from the last axis on.
    Source: CNTK 2.7.
    """

    attributes = {
        "paddingHead": Size.vector, "paddingFoot": Size.vector, "paddingMode": Size(0),
        "paddingConstantValue": Double(0.0),
    }
    modes = ("constant", "reflect", "symmetric")

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The sizes and the borders."""
        (x,) = inputs
        widths, mode = self._widths(attrs), attrs["paddingMode"]
        if len(widths) != len(x.shape):
            raise ShapeError(explain(
                f"{self.name}: there are widths for {len(widths)} axes", {"operand": x},
                "give a pair of widths for each static axis",
            ))
        if mode >= len(self.modes):
            raise ShapeError(explain(
                f"{self.name}: there is no padding mode {mode}", {"operand": x},
                "give 0 (constant), 1 (reflect) or 2 (symmetric)",
            ))
        most = [d - 1 if mode == 1 else d for d in x.shape]
        if mode and any(max(w) > m for w, m in zip(widths, most, strict=True) if m >= 0):
            raise ShapeError(explain(
                f"{self.name}: a mirrored border is wider than the operand", {"operand": x},
                "give smaller widths, or pad with a constant",
            ))
        return tuple(d + sum(w) if d >= 0 else d for d, w in zip(x.shape, widths, strict=True))

    def _widths(self, attrs: Attrs) -> list[tuple[int, int]]:
        return list(zip(attrs["paddingHead"], attrs["paddingFoot"], strict=True))[::-1]

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """jnp.pad."""
        mode = self.modes[attrs["paddingMode"]]
        value = {"constant_values": attrs["paddingConstantValue"]} if mode == "constant" else {}
        return jnp.pad(x, self._widths(attrs), mode=mode, **value)


@primitive("Gather", 74)
class Gather(Primitive):
    """Slices of the first axis of the reference, one for each index.

    Fractions of indices are dropped. An index out of range, or NaN, gives NaN, and its gradient is added to no slice.
    Shapes: reference [n, *rest], indices [*shape] -> [*shape, *rest].
    Errors: ShapeError if int32 cannot number the slices. IndexRangeError, before a run, for indices out of range that
            are constants or fed.
    Source: CNTK 2.7, which reads and writes other memory for indices out of range.
    """

    index_operand = 1
    attributes = {"axis": AxisOf(None)}  # only ever the first: another one is transposed to it

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[*indices, *rest]."""
        reference, indices = inputs
        if not reference.shape:
            raise ShapeError(explain(
                f"{self.name}: a scalar has nothing to gather from", {"reference": reference},
                "give a reference with at least one static axis",
            ))
        check_size(self.name, reference.shape[:1], reference, "the first axis of the reference")
        # Like any constant, one that is gathered from takes the type of what is beside it.
        dtype = None if reference.is_constant and indices.dtype in (np.float32, np.float64) else reference.dtype
        return Spec((*indices.shape, *reference.shape[1:]), dtype)

    def index_limit(self, node: Node) -> int | None:
        """The number of slices."""
        size = node.node_inputs[0].shape[0]
        return size if size >= 0 else None

    def lower(self, attrs: Attrs, reference: Array, indices: Array) -> Array:
        """A gather of rows."""
        rows = jnp.where(indices > -1, indices, -1).astype(jnp.int32)  # NaN is not above -1
        return reference.at[rows].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


class _GatherInRange(type(Gather)):  # type: ignore[misc]
    """The same for indices that are known to be in range."""

    def lower(self, attrs: Attrs, reference: Array, indices: Array) -> Array:
        """A gather of rows."""
        return jnp.take(reference, indices.astype(jnp.int32), axis=0, mode="clip")


GATHER_IN_RANGE = _GatherInRange()


@primitive("TopK", 87)
class TopK(Primitive):
    """The `numItems` largest elements along the last axis, largest first, and their indices.

    Errors: ShapeError for an axis so long that its indices are not exact in the type of the operand.
    Source: CNTK 2.7.
    """

    attributes = {"axis": AxisOf(Axis(-1)), "numItems": Size}
    number_of_outputs = 2
    output_names = "", "_TopKIndexMask"

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """[*front, k] twice; of a scalar, which is its own largest element, scalars."""
        (x,) = inputs
        k = attrs["numItems"]
        if not x.shape and k == 1:
            return [Spec(()), Spec((), needs_gradient=False)]
        attrs["axis"] = stored(self.name, attrs["axis"], x)
        if k < 1:
            raise ShapeError(explain(
                f"{self.name}: at least one element has to be taken, not {k}", {"operand": x},
                "give k >= 1",
            ))
        if 0 <= x.shape[-1] < k:
            raise ShapeError(explain(
                f"{self.name}: the axis has fewer than {k} elements", {"operand": x},
                "give a smaller k",
            ))
        check_results(self.name, x.shape[-1:], x)
        shape = (*x.shape[:-1], k)
        return [Spec(shape), Spec(shape, needs_gradient=False)]

    def index_bound(self, node: Node, output: Edge) -> int | None:
        """The size of the axis, of the indices."""
        size = prod(node.node_inputs[0].shape[-1:])
        return size if output is node.node_outputs[1] and size >= 0 else None

    def lower(self, attrs: Attrs, x: Array) -> tuple[Array, Array]:
        """lax.top_k."""
        if not x.ndim:
            return x, jnp.zeros_like(x)
        values, indices = lax.top_k(x, attrs["numItems"])
        return values, indices.astype(x.dtype)
