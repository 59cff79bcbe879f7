"""Changes of shape: reshape, transpose, squeeze, and static axes from and to the batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import jax.numpy as jnp

from .._typing import Array
from ..engine.data.layout import Batch
from ..engine.data.sparse import Sparse
from ..engine.lower.values import Context, Traced
from ..engine.native.program import Operation
from ..engine.plan.padding import PaddedOperand
from ..graph.axis import BATCH, END_STATIC, Axis
from ..graph.build import Spec
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, INFERRED, Shape, shape_text
from ..graph.variable import Edge
from ._axes import position, stored
from .base import Attrs, AxisOf, Primitive, ShapeOf, primitive


@primitive("Reshape", 16)
class Reshape(Primitive):
    """Some neighbouring axes replaced by others with as many elements; one new dimension may be inferred (-1).

    `beginAxis` and `endAxis` count places between axes as files do, from the end: the axes between `endAxis` + 1 and
    `beginAxis` + 1 (both negative) are replaced, `END_STATIC` is the front.
    Shapes: [*a, *old, *b] -> [*a, *newShape, *b].
    Source: CNTK 2.7.
    """

    attributes = {"newShape": ShapeOf, "beginAxis": AxisOf(Axis(-1)), "endAxis": AxisOf(END_STATIC)}
    takes_sparse = True
    rearranged_operands = slice(None)
    keeps_elements = True

    def by_steps(self, node: Node) -> Operation | None:
        """The elements in CNTK's order."""
        return Operation(lambda writer, x: writer.same(writer.vector(x)))

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the operand, if each step keeps its elements."""
        x = operands[0]
        new = self.outputs([x.variable], dict(attrs))
        return x.padding if _around_steps(x.variable.shape) == _around_steps(new) else None

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape with the new dimensions; the attributes then count positions from the end."""
        (x,) = inputs
        begin, end = (self._place(attrs[k], x) for k in ("beginAxis", "endAxis"))
        if begin > end:
            raise ShapeError(explain(
                f"{self.name}: the axes to replace begin after their end", {"operand": x},
                "give begin_axis <= end_axis",
            ))
        attrs["beginAxis"], attrs["endAxis"] = Axis(-begin - 1), Axis(-end - 1)
        rank, new = len(x.shape), attrs["newShape"]
        old = x.shape[rank - end : rank - begin]
        return (*x.shape[: rank - end], *self._replacement(x, old, new), *x.shape[rank - begin :])

    def _place(self, axis: Axis, x: Edge) -> int:
        """The number of axes after the place that an attribute means."""
        rank = len(x.shape)
        if axis == END_STATIC:
            return rank
        index = axis.static_axis_index()
        place = -index - 1 if index < 0 else rank - index - 1
        if not 0 <= place <= rank:
            raise AxisError(explain(
                f"{self.name}: begin_axis or end_axis is out of bounds for an operand with {rank} static axes",
                {"operand": x}, f"give axes from 0 to {rank}",
            ))
        return place

    def _replacement(self, x: Edge, old: Shape, new: Shape) -> Shape:
        inferred = [i for i, d in enumerate(new) if d == INFERRED]
        if len(inferred) > 1:
            raise ShapeError(explain(
                f"{self.name}: more than one dimension of the new shape {shape_text(new)} is to be inferred",
                {"operand": x},
                "leave at most one dimension open (-1)",
            ))
        have, want = prod(d for d in old if d > 0), prod(d for d in new if d >= 0)
        is_open = any(d < 0 for d in old)
        fits = want > 0 and have % want == 0 if inferred else have == want
        if not is_open and (FREE in new or not fits):
            raise self._mismatch(x, old, new)
        # An open dimension becomes the new one if the known dimensions of both agree.
        size = (FREE if FREE in old else INFERRED) if is_open else have // max(1, want)
        filled = tuple(size if i in inferred else d for i, d in enumerate(new))
        if filled.count(FREE) > max(1, old.count(FREE)):
            raise self._mismatch(x, old, new)
        return filled

    def _mismatch(self, x: Edge, old: Shape, new: Shape) -> ShapeError:
        return ShapeError(explain(
            f"{self.name}: {shape_text(old)} has another number of elements than the new shape {shape_text(new)}",
            {"operand": x}, "give a shape with as many elements, or leave one dimension open (-1)",
        ))

    def lower(self, attrs: Attrs, x: Array | Sparse) -> Array | Sparse:
        """A reshape; sparse samples keep their flat indices."""
        rank = len(x.shape)
        at = rank + 1 + attrs["endAxis"].static_axis_index()
        to = rank + 1 + attrs["beginAxis"].static_axis_index()
        old = x.shape[at:to]
        new = list(attrs["newShape"])
        if INFERRED not in new and new.count(FREE) > 1:
            sizes = iter(_other_sizes(old, new))
            new = [next(sizes, d) if d == FREE else d for d in new]
        new = [INFERRED if d == FREE else d for d in new]
        if INFERRED in new:
            new[new.index(INFERRED)] = prod(old) // prod(d for d in new if d >= 0)
        shape = (*x.shape[:at], *new, *x.shape[to:])
        return replace(x, shape=shape) if isinstance(x, Sparse) else x.reshape(shape)


def _other_sizes(old: Shape, new: Sequence[int]) -> list[int]:
    """The sizes of the free dimensions of a new shape, in their order: the old ones that it does not name.

    As many axes of size 1 are left out as it has fewer.
    """
    left = list(old)
    for d in new:
        if d in left:
            left.remove(d)
    while len(left) > new.count(FREE) and 1 in left:
        left.remove(1)
    return left


def _around_steps(shape: Shape) -> tuple[int, int]:
    """The numbers of elements along the axes before the (first) free one, and along those after it."""
    at = shape.index(FREE)
    return prod(shape[:at]), prod(shape[at + 1 :])


@primitive("Squeeze", 88)
class Squeeze(Primitive):
    """Axes of size 1 dropped: those named, or all."""

    attributes = {"axisVec": AxisOf(None).vector}
    rearranged_operands = slice(None)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The other axes."""
        (x,) = inputs
        if "axisVec" not in attrs and FREE in x.shape and INFERRED not in x.shape:
            # A free dimension stays, also where the data have the size 1.
            attrs["axisVec"] = [Axis(i - len(x.shape)) for i, d in enumerate(x.shape) if d == 1]
        dropped = {position(self.name, a, x) for a in attrs["axisVec"]} if "axisVec" in attrs else {
            i for i, d in enumerate(x.shape) if d == 1
        }
        wrong = [i for i in dropped if x.shape[i] not in (1, INFERRED)]
        if wrong:
            raise ShapeError(explain(
                f"{self.name}: static axis {wrong[0]} has size {x.shape[wrong[0]]}, so it cannot be dropped",
                {"operand": x}, "name only axes of size 1",
            ))
        return tuple(d for i, d in enumerate(x.shape) if i not in dropped)

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """jnp.squeeze."""
        return jnp.squeeze(x, tuple(a.static_axis_index() for a in attrs["axisVec"]) if "axisVec" in attrs else None)


@primitive("TransposeAxes", 12)
class TransposeAxes(Primitive):
    """Two axes swapped, or all permuted. `axisVec` lists, from the last axis of the output on, the axes of the operand.

    An axis to swap that is before the first one, as the end of the static axes is, is one of size 1.
    Errors: AxisError if both are.
    Source: CNTK 2.7.
    """

    attributes = {"axis1": AxisOf(None), "axis2": AxisOf(None), "axisVec": AxisOf(None).vector}
    rearranged_operands = slice(None)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The dimensions in their new order; the attributes then count axes from the end."""
        (x,) = inputs
        for name in ("axis1", "axis2"):
            if attrs.get(name) == END_STATIC:
                attrs[name] = Axis(-len(x.shape) - 1)
            elif name in attrs and not (x.shape and _is_missing(attrs[name], x)):
                attrs[name] = stored(self.name, attrs[name], x)
        if "axis1" in attrs and all(_is_missing(attrs[name], x) for name in ("axis1", "axis2")):
            raise AxisError(explain(
                "TransposeAxes: both axes are before the first one", {"operand": x}, "give an axis of the operand"
            ))
        if "axisVec" in attrs:
            attrs["axisVec"] = [stored(self.name, a, x) for a in attrs["axisVec"]]
        order = transposition(attrs, len(x.shape))
        shape = (1,) * (len(order) - len(x.shape)) + x.shape
        return tuple(shape[i] for i in order)

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the operand."""
        return operands[0].padding

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """jnp.transpose."""
        order = transposition(attrs, x.ndim)
        return jnp.transpose(x.reshape((1,) * (len(order) - x.ndim) + x.shape), order)


def transposition(attrs: Attrs, rank: int) -> list[int]:
    """The axes of a `TransposeAxes` node's operand in their new order; if these are more than its `rank`, axes of size
    1 come before its first one."""
    if "axisVec" in attrs:
        permuted = [rank + a.static_axis_index() for a in reversed(attrs["axisVec"])]
        return [*range(rank - len(permuted)), *permuted]
    first, second = (attrs[k].static_axis_index() for k in ("axis1", "axis2"))
    order = list(range(max(rank, -first, -second)))
    order[first], order[second] = order[second], order[first]
    return order


def _is_missing(axis: Axis, x: Edge) -> bool:
    """Whether an axis is before the first one."""
    return axis.is_static_axis and axis.static_axis_index() < -len(x.shape)


@primitive("UnpackBatchAxis", 79)
class UnpackBatchAxis(Primitive):
    """The batch axis as the first static axis.

    Shapes: [*shape] with the batch axis -> [FREE, *shape] without dynamic axes.
    Errors: AxisError for sequences.
    """

    packed = True
    needs_exact_batch = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[FREE, *shape]."""
        (x,) = inputs
        if x.sequence_axis is not None:
            raise AxisError(explain(
                f"{self.name}: the operand consists of sequences", {"operand": x},
                "only an operand with the batch axis alone can be unpacked; for sequences use cntk.sequence.unpack",
            ))
        return Spec((FREE, *x.shape), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """The same data."""
        return Traced(ctx.array(x) if x.axes else ctx.array(x)[None], ())


@primitive("ToBatchAxis", 80)
class ToBatchAxis(Primitive):
    """The first static axis as the batch axis.

    Shapes: [n, *shape] without dynamic axes -> [*shape] with the batch axis.
    Errors: AxisError if there is a dynamic axis already; ShapeError for a scalar.
    """

    packed = True
    needs_exact_batch = True
    makes_batch = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[*shape]."""
        (x,) = inputs
        if x.dynamic_axes:
            raise AxisError(explain(
                f"{self.name}: the operand has dynamic axes already", {"operand": x},
                "give a constant, a parameter, or a value reduced along the batch axis",
            ))
        if not x.shape:
            raise ShapeError(explain(
                f"{self.name}: a scalar has no axis to become the batch axis", {"operand": x},
                "reshape it to (1,)",
            ))
        return Spec(x.shape[1:], axes=(BATCH,))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """The same data."""
        data = ctx.array(x)
        if ctx.batch is None:
            ctx.batch = Batch(jnp.asarray(len(data), jnp.int32), len(data), full=True)
        return Traced(data, (BATCH,))
