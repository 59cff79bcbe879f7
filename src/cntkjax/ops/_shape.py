"""Shape operations: reshape, transpose, slice, splice, pad, gather, one-hot, crop; `zeros_like` and its kin; casts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .._typing import ElementType, Measured, ShapeLike
from ..formats.dictionary import SizeT
from ..graph.arguments import public_operation
from ..graph.axis import BATCH, END_STATIC, Axis, AxisLike
from ..graph.dtypes import as_dtype
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.shape import as_shape, is_unknown
from ..primitives import fill, select
from ..primitives import reshape as _forms
from ..primitives.crop import Crop
from ..variables import Variable
from ._blocks import as_one_block, node
from ._operand import Operand, as_variable, as_variables
from ._structure import combine
from .functions import Function
from .sequence import slice as slice_of_steps
from .sequence import unpack

__all__ = [
    "CONSTANT_PAD", "REFLECT_PAD", "SYMMETRIC_PAD", "assign", "cast", "crop_automatic", "crop_automatic_with_ancestors",
    "crop_manual", "expand_dims", "eye_like", "flatten", "gather", "one_hot", "ones_like", "pad", "reshape", "slice",
    "splice", "squeeze", "swapaxes", "to_batch", "top_k", "transpose", "unpack_batch", "zeros_like",
]

CONSTANT_PAD, REFLECT_PAD, SYMMETRIC_PAD = 0, 1, 2


# ---- reshaping
@public_operation
def reshape(
    x: Operand, shape: ShapeLike, begin_axis: AxisLike | None = None, end_axis: AxisLike | None = None, name: str = ""
) -> Function:
    """Reshape x; with `begin_axis` and `end_axis` only the axes from `begin_axis` up to `end_axis` are replaced.

    Shapes: one dimension of ``shape`` may be -1, to be inferred.
    Errors: ShapeError if the number of elements would change; AxisError for axes that x does not have.

    >>> reshape([[0, 1], [2, 3], [4, 5]], (2, 3)).eval()
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    >>> reshape(np.zeros((2, 3, 4)), (6,), begin_axis=0, end_axis=2).shape
    (6, 4)
    """
    begin, end = _place(end_axis, Axis(-1)), _place(begin_axis, END_STATIC)  # files count from the end
    attributes = {"newShape": as_shape(shape), "beginAxis": begin, "endAxis": end}
    return node(_forms.Reshape, [as_variable(x)], attributes, name)


def _place(axis: AxisLike | None, default: Axis) -> Axis:
    """A position between axes as Reshape's attributes count it: from the end, so axis i starts at position -i."""
    if axis is None:
        return default
    if axis == END_STATIC:
        return Axis(-1)
    index = axis.static_axis_index() if isinstance(axis, Axis) else int(axis)
    return END_STATIC if index == 0 else Axis(index - 1)


@public_operation
def expand_dims(x: Operand, axis: AxisLike, name: str = "") -> Function:
    """Insert an axis of size 1: after axis `axis` if that is not negative, otherwise so that it is ``shape[axis]``.

    Shapes: [*before, *after] -> [*before, 1, *after].
    Errors: AxisError for an axis that x does not have.

    >>> expand_dims(np.zeros((2, 3)), -1).shape, expand_dims(np.zeros((2, 3)), 0).shape
    ((2, 3, 1), (2, 1, 3))
    """
    x = as_variable(x)
    axis = Axis(axis)
    if axis != END_STATIC:
        index = axis.static_axis_index()
        if not is_unknown(x.shape) and index >= len(x.shape):
            raise AxisError(explain(
                f"expand_dims: static axis {index} is out of bounds", {"x": x}, "use -1 for a new last axis"
            ))

    def inner(v: Variable) -> Function:
        return node(_forms.Reshape, [v], {"newShape": (1,), "beginAxis": axis, "endAxis": axis})

    return as_one_block("ExpandDims", inner, [x], name)


@public_operation
def squeeze(x: Operand, axes: AxisLike | Sequence[AxisLike] | None = None, name: str = "") -> Function:
    """Remove the given axes of size 1, or all axes of size 1 without `axes`.

    Shapes: [*before, 1, *after] -> [*before, *after].

    >>> squeeze(np.zeros((1, 3, 1))).shape, squeeze(np.zeros((1, 3, 1)), 0).shape
    ((3,), (3, 1))
    """
    attributes = {} if axes is None else {"axisVec": [Axis(a) for a in _listed(axes)]}
    return node(_forms.Squeeze, [as_variable(x)], attributes, name)


@public_operation
def flatten(x: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """Flatten x to a matrix whose rows combine the axes before `axis` and whose columns combine the others.

    Without `axis`, or with 0, the matrix has one row.

    Shapes: [*before, *after] -> [size of before, size of after].
    Errors: ShapeError for an axis that x does not have.

    >>> flatten(np.zeros((2, 3, 4))).shape, flatten(np.zeros((2, 3, 4)), 1).shape
    ((1, 24), (2, 12))
    """
    x = as_variable(x)
    rank = len(x.shape)
    at = Axis(0 if axis is None else axis)
    index = rank if at.is_batch_axis else at.static_axis_index()  # one column before the batch axis
    trailing = -index - 1 if index < 0 else rank - index
    if not 0 <= trailing <= rank:
        raise ShapeError(explain(
            f"flatten: axis {index} is out of bounds", {"x": x}, f"give an axis from {-rank - 1} to {rank}"
        ))
    leading, rest = x.shape[: rank - trailing], x.shape[rank - trailing :]
    shape = tuple(prod(part) if all(d >= 0 for d in part) else -1 for part in (leading, rest))
    return as_one_block("Flatten", lambda v: reshape(v, shape), [x], name, {"axis": Axis(-trailing - 1)})


@public_operation
def swapaxes(x: Operand, axis1: AxisLike = 0, axis2: AxisLike = 1, name: str = "") -> Function:
    """Swap two static axes. A negative axis before the first one is an axis of size 1.

    Shapes: [..., n, ..., m, ...] -> [..., m, ..., n, ...].
    Errors: AxisError for an axis that x does not have, and if both are before the first one.

    >>> swapaxes([[0, 1], [2, 3], [4, 5]], 0, 1).eval()
    array([[0., 2., 4.],
           [1., 3., 5.]], dtype=float32)
    """
    return node(_forms.TransposeAxes, [as_variable(x)], {"axis1": Axis(axis1), "axis2": Axis(axis2)}, name)


@public_operation
def transpose(x: Operand, perm: Sequence[AxisLike], name: str = "") -> Function:
    """Permute the static axes: axis i of the result is axis ``perm[i]`` of x.

    Shapes: [*shape] -> [shape[i] for i in perm].
    Errors: TypeError if `perm` is a number; ValueError for a repeated or missing axis.

    >>> transpose(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    if isinstance(perm, (int, np.integer)):
        raise TypeError("transpose expects a permutation; to swap two axes use swapaxes")
    order = [p.static_axis_index() if isinstance(p, Axis) else int(p) for p in perm]
    rank = len(order)
    if sorted(p % rank for p in order if -rank <= p < rank) != list(range(rank)):
        raise ValueError(
            f"transpose: {tuple(order)} is not a permutation of {rank} axes: there is a duplicate item; "
            "name each axis exactly once"
        )
    operand = as_variable(x)
    if not is_unknown(operand.shape) and rank > len(operand.shape):
        axes = len(operand.shape)
        raise AxisError(explain(
            f"transpose: {tuple(order)} is a permutation of {rank} axes, and the operand has {axes} static axes",
            {"x": operand}, f"give a permutation of {tuple(range(axes))}; dynamic axes are not counted",
        ))
    vector = [Axis(p % rank - rank) for p in reversed(order)]
    return node(_forms.TransposeAxes, [operand], {"axisVec": vector}, name)


@public_operation
def unpack_batch(x: Operand, name: str = "") -> Function:
    """Turn the batch axis into the first static axis, which has a free dimension.

    Shapes: [*shape] with the batch axis -> [batch, *shape] without dynamic axes.

    >>> from cntkjax import input_variable
    >>> x = input_variable(2)
    >>> unpack_batch(x).eval({x: [[1, 2], [3, 4]]}).shape
    (2, 2)
    """
    return node(_forms.UnpackBatchAxis, [as_variable(x)], name=name)


@public_operation
def to_batch(x: Operand, name: str = "") -> Function:
    """Turn the first static axis into the batch axis: the inverse of `unpack_batch`.

    Shapes: [batch, *shape] without dynamic axes -> [*shape] with the batch axis.

    >>> to_batch([[1, 2], [3, 4]])
    Composite(ToBatchAxis):  -> Output('...', [#], [2])
    """
    return node(_forms.ToBatchAxis, [as_variable(x)], name=name)


# ---- slicing, concatenation, padding, selection
@public_operation
def slice(
    x: Operand, axis: AxisLike | Sequence[AxisLike], begin_index: int | Sequence[int], end_index: int | Sequence[int],
    strides: int | Sequence[int] | None = None, name: str = "",
) -> Function:
    """The elements from `begin_index` up to but excluding `end_index`, along one axis or each of a list of axes.

    Negative indices count from the end; an `end_index` of 0 is the end of the axis. A stride of -1 reverses the axis.
    Unlike in CNTK, the axis may be the batch axis, which selects samples, or the sequence axis, which selects steps
    like `cntk.sequence.slice`.

    Shapes: [..., n, ...] -> [..., end_index - begin_index, ...]; with a stride, those at that distance.
    Errors: ShapeError for a range that is empty or exceeds the axis; AxisError for an axis that x does not have;
            ValueError if the numbers of axes, indices and strides differ.

    >>> slice([[1, 2, -3], [4, 5, 6]], 1, 1, 0).eval()
    array([[ 2., -3.],
           [ 5.,  6.]], dtype=float32)
    """
    axes = [Axis(a) for a in _listed(axis)]
    begins, ends = ([int(i) for i in _listed(k)] for k in (begin_index, end_index))
    steps = [1] * len(axes) if strides is None else [int(i) for i in _listed(strides)]
    if not len(axes) == len(begins) == len(ends) == len(steps):
        raise ValueError(
            f"slice: there are {len(axes)} axes, {len(begins)} begins, {len(ends)} ends and {len(steps)} strides: "
            "pass the same number of each"
        )
    if len(axes) == 1 and axes[0].is_sequence_axis and steps == [1]:
        return slice_of_steps(as_variable(x), begins[0], ends[0], name)
    if axes == [BATCH]:
        return to_batch(slice(unpack_batch(x), 0, begins[0], ends[0], steps[0]), name)
    if len(axes) == 1:
        names = ("axis", "beginIndex", "endIndex", "sliceStrides")
        attributes: dict[str, Any] = dict(zip(names, (axes[0], begins[0], ends[0], steps[0]), strict=True))
    else:
        attributes = {"axisVec": axes, "beginIndexVec": begins, "endIndexVec": ends, "sliceStridesVec": steps}
    return node(select.Slice, [as_variable(x)], attributes, name)


@public_operation
def splice(*inputs: Operand, **kw_axis_name: Any) -> Function:
    """Concatenate the operands along the static axis `axis`, by default the last one.

    Shapes: the operands broadcast along the other axes; ``axis=Axis.new_leading_axis()``, or -1 - rank, stacks them.
    Errors: ShapeError if they do not broadcast; ValueError without operands.

    >>> splice([1, 2], [3]).eval()
    array([1., 2., 3.], dtype=float32)
    """
    axis, name = kw_axis_name.pop("axis", -1), kw_axis_name.pop("name", "")
    if kw_axis_name:
        raise TypeError(f"splice() got an unexpected keyword argument '{next(iter(kw_axis_name))}'")
    if not inputs:
        raise ValueError("splice: there are no operands; pass at least one")
    operands = as_variables(*inputs, widest=False)
    if len(operands) == 1:
        return combine(operands)  # without the name, as in CNTK
    return node(select.Splice, operands, {"axis": Axis(axis)}, name)


@public_operation
def pad(
    x: Operand, pattern: Sequence[Sequence[int]], mode: int = CONSTANT_PAD, constant_value: Measured = 0, name: str = ""
) -> Function:
    """Pad x: `pattern` has a pair (before, after) of widths for each static axis.

    `mode` is CONSTANT_PAD (filled with `constant_value`), REFLECT_PAD (mirrored without repeating the outermost
    elements) or SYMMETRIC_PAD (mirrored with them).

    Shapes: [n, ...] -> [before + n + after, ...].
    Errors: ValueError for anything but pairs of non-negative widths.

    >>> pad([1, 2, 3], [(1, 2)], mode=REFLECT_PAD).eval()
    array([2., 1., 2., 3., 2., 1.], dtype=float32)
    """
    if not all(hasattr(p, "__len__") and len(p) == 2 for p in pattern):
        raise ValueError(f"pad: the pattern {pattern!r} needs a pair (before, after) for each static axis")
    widths = [(int(head), int(foot)) for head, foot in reversed(list(pattern))]
    if any(min(w) < 0 for w in widths):
        raise ValueError(f"pad: the pattern {pattern!r} has negative widths; to remove elements use cntk.slice")
    attributes = {
        "paddingHead": [w[0] for w in widths], "paddingFoot": [w[1] for w in widths], "paddingMode": int(mode),
        "paddingConstantValue": float(constant_value),
    }
    return node(select.Pad, [as_variable(x)], attributes, name)


@public_operation
def gather(reference: Operand, indices: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """Gather the slices of `reference` at the given indices along its first axis, or along `axis`.

    Unlike in CNTK, the axis may be dynamic: the batch axis gathers samples of the minibatch, the sequence axis steps of
    the same sequence.

    Shapes: reference [n, *rest], indices [*shape] -> [*shape, *rest]; a dynamic axis counts as a leading axis.

    >>> gather([[0, 1], [2, 3], [4, 5]], [2, 0]).eval()
    array([[4., 5.],
           [0., 1.]], dtype=float32)
    """
    reference, indices = as_variables(reference, indices)
    if axis is None or axis in (0, Axis(0)):
        return node(select.Gather, [reference, indices], None if axis is None else {"axis": Axis(0)}, name)
    at = Axis(axis)
    if at.is_dynamic_axis:
        return gather(unpack_batch(reference) if at.is_batch_axis else unpack(reference, 0, True), indices, name=name)

    def inner(r: Variable, i: Variable) -> Function:
        # CNTK swaps the axis with the first one, in this order of attributes. If the ranks of the indices and of the
        # reference differ, `at` is another axis of the result than of the reference; this too is as in CNTK.
        return swapaxes(_gathered(swapaxes(r, Axis(0), at), i), Axis(0), at)

    return as_one_block("GatherOp", inner, [reference, indices], name, {"axis": at})


def _gathered(reference: Function, indices: Variable) -> Function:
    return node(select.Gather, [reference.output, indices])


@public_operation
def top_k(x: Operand, k: int, axis: AxisLike = -1, name: str = "") -> Function:
    """The k largest elements along a static axis in descending order, and their indices, as two outputs.

    Shapes: [*shape] -> twice the same shape with size k along the axis.

    >>> values, indices = top_k([5, 1, 9], 2).eval().values()
    >>> values, indices
    (array([9., 5.], dtype=float32), array([2., 0.], dtype=float32))
    """
    x = as_variable(x)
    along = Axis(axis)
    attributes = {"axis": along, "numItems": SizeT(k)}
    if along == Axis(-1):
        return node(select.TopK, [x], attributes, name)

    def inner(v: Variable) -> Function:
        sorted_values = node(select.TopK, [swapaxes(v, Axis(-1), along).output], {"numItems": int(k)})
        return combine([swapaxes(o, Axis(-1), along).output for o in sorted_values.outputs])

    return as_one_block("TopK", inner, [x], name, attributes)


@public_operation
def crop_manual(node_input: Operand, node_referent: Operand, offset_x: int, offset_y: int, name: str = "") -> Function:
    """Crop an image to the height and width of another, at the given offsets.

    Shapes: node_input [C, H, W], node_referent [..., h, w] -> [C, h, w].
    Units: offsets in pixels of node_input.

    >>> import numpy as np
    >>> image = np.arange(16.).reshape(1, 4, 4)
    >>> crop_manual(image, np.zeros((1, 2, 2)), 1, 0).eval()
    array([[[1., 2.],
            [5., 6.]]])
    """
    operands = as_variables(node_input, node_referent)
    return node(Crop, operands, {"offset": [int(offset_x), int(offset_y)]}, name)


@public_operation
def crop_automatic(node_input: Operand, node_referent: Operand, name: str = "") -> Function:
    """Crop an image to the height and width of another, at the position that corresponds to it.

    The offset is computed from the convolutions and poolings between the two operands and their common ancestor.

    Shapes: node_input [C, H, W], node_referent [..., h, w] -> [C, h, w].

    Errors: ValueError if the operands have no common ancestor, or the image is too small.

    >>> import cntkjax as C
    >>> x = C.input_variable((1, 4, 4))
    >>> smaller = C.pooling(x, C.AVG_POOLING, (2, 2))
    >>> crop_automatic(x, smaller).shape
    (1, 3, 3)
    """
    return node(Crop, as_variables(node_input, node_referent), name=name)


@public_operation
def crop_automatic_with_ancestors(
    node_input: Operand, node_referent: Operand, ancestor_input: Operand, ancestor_referent: Operand, name: str = ""
) -> Function:
    """Like `crop_automatic` for images without a common ancestor: the two given ancestors count as the same image.

    Shapes: node_input [C, H, W], node_referent [..., h, w] -> [C, h, w].

    >>> import cntkjax as C
    >>> x, y = C.input_variable((1, 4, 4)), C.input_variable((3, 4, 4))
    >>> crop_automatic_with_ancestors(x, C.pooling(y, C.AVG_POOLING, (2, 2)), x, y).shape
    (1, 3, 3)
    """
    operands = as_variables(node_input, node_referent, ancestor_input, ancestor_referent)
    return node(Crop, operands, name=name)


# ---- values from shapes and indices
@public_operation
def one_hot(x: Operand, num_classes: int, sparse_output: bool = False, axis: AxisLike = -1, name: str = "") -> Function:
    """One-hot encoding of indices along a new axis, dense or sparse.

    Shapes: [*s] -> [*s[:axis], num_classes, *s[axis:]]. An index outside [0, num_classes) gives zeros only.

    >>> one_hot([1, 3], 4).eval()
    array([[0., 1., 0., 0.],
           [0., 0., 0., 1.]], dtype=float32)
    """
    attributes = {"numClass": int(num_classes), "oneHotOutputSparse": bool(sparse_output), "onehotAxis": Axis(axis)}
    return node(fill.OneHot, [as_variable(x)], attributes, name)


@public_operation
def zeros_like(x: Operand, name: str = "") -> Function:
    """Zeros with the shape and dynamic axes of x.

    Shapes: [*shape] -> [*shape].

    >>> zeros_like([1, 2]).eval()
    array([0., 0.], dtype=float32)
    """
    return node(fill.ConstantOp, [as_variable(x)], {"fillValue": 0.0}, name)


@public_operation
def ones_like(x: Operand, name: str = "") -> Function:
    """Ones with the shape and dynamic axes of x.

    Shapes: [*shape] -> [*shape].

    >>> ones_like([1, 2]).eval()
    array([1., 1.], dtype=float32)
    """
    return node(fill.ConstantOp, [as_variable(x)], {"fillValue": 1.0}, name)


@public_operation
def eye_like(x: Operand, sparse_output: bool = True, name: str = "") -> Function:
    """An identity matrix with the shape of x, sparse by default. x must have two axes, counting the batch axis.

    Shapes: [rows, columns], or [columns] with the batch axis -> the same.

    >>> eye_like([[0, 0, 0], [0, 0, 0]], sparse_output=False).eval()
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    return node(fill.EyeLike, [as_variable(x)], {"OutputSparse": bool(sparse_output)}, name)


@public_operation
def cast(node_input: Operand, dtype: ElementType | None, name: str = "") -> Function:
    """Convert the operand to another element type.

    Shapes: [*shape] -> [*shape].
    Errors: ValueError for an element type that CNTK does not support.

    >>> cast([1, 2], np.float64).eval()
    array([1., 2.])
    """
    return node(fill.Cast, [as_variable(node_input)], {"newDataType": as_dtype(dtype)}, name)


@public_operation
def assign(ref: Operand, input: Operand, name: str = "") -> Function:
    """The value of `input`, which is also assigned to the parameter or constant `ref` after the forward pass.

    Shapes: input [*shape], ref [*shape] -> [*shape].

    >>> from cntkjax import constant
    >>> state = constant(shape=(2,), value=0)
    >>> assign(state, [1, 2]).eval()
    array([1., 2.], dtype=float32)
    >>> state.value
    array([1., 2.], dtype=float32)
    """
    return node(fill.Assign, as_variables(ref, input), name=name)


def _listed(items: object) -> list[Any]:
    return list(items) if isinstance(items, (list, tuple)) else [items]
