"""Tensors filled in the shape of their operand: constants, identity, one-hot; casts; assignment."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp

from .._typing import Array
from ..engine.data.sparse import Sparse
from ..engine.lower.values import Context, Traced
from ..engine.plan.parts import resolve
from ..graph.axis import Axis
from ..graph.build import Spec
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.function import Node
from ..graph.shape import Shape, matches
from ..graph.variable import Edge, Leaf
from ._axes import position
from ._indices import check_size
from .base import Attrs, AxisOf, Bool, Double, DTypeOf, Primitive, Size, primitive


@primitive("ConstantOp", 89)
class ConstantOp(Primitive):
    """A constant in the shape of the operand."""

    attributes = {"fillValue": Double(0.0)}
    elementwise = True

    def stops_gradient(self, node: Node) -> bool:
        """Always."""
        return True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the operand."""
        return inputs[0].shape

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """jnp.full_like."""
        return jnp.full_like(x, attrs["fillValue"])


@primitive("EyeLikeOp", 92)
class EyeLike(Primitive):
    """The identity matrix in the shape of the operand; with the batch axis, whose samples are the rows.

    Errors: ShapeError unless the operand has two axes, static and batch axis together.
    Source: CNTK 2.7.
    """

    attributes = {"OutputSparse": Bool(True)}
    packed = True
    mixes_samples = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the operand."""
        (x,) = inputs
        if len(x.shape) + len(x.dynamic_axes) != 2 or x.sequence_axis is not None:
            raise ShapeError(explain(
                f"{self.name}: the operand needs exactly two axes, counting the batch axis", {"operand": x},
                "give a matrix, or a vector with the batch axis",
            ))
        return x.shape

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """Ones at the places of the diagonal; with a batch axis the samples count the rows."""
        data = ctx.array(x)
        rows, columns = data.shape
        if not attrs["OutputSparse"]:
            return Traced(jnp.eye(rows, columns, dtype=data.dtype), x.axes)
        row = jnp.arange(rows, dtype=jnp.int32)
        column, value = jnp.minimum(row, columns - 1), (row < columns).astype(data.dtype)
        if x.axes:
            return Traced(Sparse(column[:, None], value[:, None], (columns,), data.dtype), x.axes)
        return Traced(Sparse(row * columns + column, value, (rows, columns), data.dtype), ())


@primitive("OneHotOp", 68)
class OneHot(Primitive):
    """A new axis that is 1 at the index given by the operand, and 0 elsewhere. No gradient.

    Shapes: [*s] -> [*s[:axis], numClass, *s[axis:]]. Numbers outside of [0, numClass) give zeros.
    Errors: AxisError for an axis that the output does not have; ShapeError for a sparse output with more elements than
            int32 can number.
    Source: CNTK 2.7.
    """

    index_operand = 0
    attributes = {"numClass": Size, "oneHotOutputSparse": Bool(False), "onehotAxis": AxisOf(Axis(-1))}

    def makes_sparse(self, attrs: Attrs) -> bool:
        """The value of the attribute."""
        return bool(attrs.get("oneHotOutputSparse"))

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape with the new axis; the attribute then counts it from the end."""
        (x,) = inputs
        if attrs["numClass"] < 1:
            raise ShapeError(explain(
                f"{self.name}: there have to be classes, not {attrs['numClass']}", {"operand": x},
                "give num_classes >= 1",
            ))
        at = position(self.name, attrs["onehotAxis"], x, extra=1)
        attrs["onehotAxis"] = Axis(at - len(x.shape) - 1)
        shape = (*x.shape[:at], attrs["numClass"], *x.shape[at:])
        check_size(self.name, shape if self.makes_sparse(attrs) else (attrs["numClass"],), x, "a sample of the output")
        return shape

    def lower(self, attrs: Attrs, x: Array) -> Array | Sparse:
        """jax.nn.one_hot, or the indices alone if the output is to be sparse."""
        n, at = attrs["numClass"], x.ndim + 1 + attrs["onehotAxis"].static_axis_index()
        # A negative number is no class, nor is NaN.
        classes = x if jnp.issubdtype(x.dtype, jnp.integer) else jnp.where(x >= 0, x, -1).astype(jnp.int32)
        if not attrs["oneHotOutputSparse"]:
            return jax.nn.one_hot(classes, n, dtype=x.dtype, axis=at)
        inner = prod(x.shape[at:])
        place = jnp.arange(x.size, dtype=jnp.int32)
        classes = classes.reshape(-1)
        valid = (classes >= 0) & (classes < n)
        indices = (place // inner * n + jnp.where(valid, classes, 0)) * inner + place % inner
        return Sparse(indices, valid.astype(x.dtype), (*x.shape[:at], n, *x.shape[at:]), x.dtype)


@primitive("Cast", 91)
class Cast(Primitive):
    """The operand in another element type."""

    attributes = {"newDataType": DTypeOf}
    elementwise = True
    infers_partially = True  # the type is known whatever the operand is
    rearranged_operands = slice(None)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the operand."""
        return Spec(inputs[0].shape, attrs["newDataType"])

    def lower(self, attrs: Attrs, x: Array) -> Array:
        """astype."""
        return x.astype(attrs["newDataType"])


@primitive("Assign", 73)
class Assign(Primitive):
    """The second operand; it is assigned to the first, a parameter or constant, after the forward pass.

    Errors: AxisError if an operand has dynamic axes; ShapeError if the shapes differ or the first holds no value.
    Source: CNTK 2.7.
    """

    packed = True
    assigns_operand = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the operands."""
        ref, value = inputs
        operands = {"ref": ref, "input": value}
        if ref.dynamic_axes or value.dynamic_axes:
            raise AxisError(explain(
                f"{self.name}: the operands must not have dynamic axes", operands,
                "reduce over them first",
            ))
        if not isinstance(ref, Leaf) and not ref.is_placeholder:
            raise ShapeError(explain(
                f"{self.name}: only parameters and constants can be assigned to", operands,
                "give a cntk.parameter or cntk.constant as the first operand",
            ))
        if not matches(value.shape, ref.shape):
            raise ShapeError(explain(f"{self.name}: the shapes of the operands differ", operands, "reshape the value"))
        return ref.shape

    def lower_packed(self, ctx: Context, attrs: Attrs, ref: Traced, value: Traced) -> Traced:
        """The value, which the leaf gets after the forward pass."""
        assert ctx.node is not None
        leaf = resolve(ctx.node.node_inputs[0])
        if not isinstance(leaf, Leaf):
            raise ShapeError(explain(
                f"{self.name}: only parameters and constants can be assigned to", {"ref": leaf},
                "give a cntk.parameter or cntk.constant as the first operand",
            ))
        data = ctx.array(value)
        if data.shape != leaf.shape:
            raise ShapeError(explain(
                f"{self.name}: a value of shape {data.shape} does not fit", {"ref": leaf}, "give a value of that shape"
            ))
        ctx.update(leaf, data)
        return Traced(data, ())
