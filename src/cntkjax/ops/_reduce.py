"""Reductions, argmax and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..graph.arguments import public_operation
from ..graph.axis import ALL_AXES, ALL_STATIC, Axis, AxisLike
from ..graph.shape import FREE, is_unknown
from ..primitives import reduce as _primitives
from ..primitives.reshape import Squeeze
from ..variables import Variable
from ._blocks import as_one_block, node
from ._elementwise import abs, element_divide, element_times, exp, log, minus, sqrt
from ._operand import Operand, as_variable
from ._shape import reshape
from .functions import Function

__all__ = [
    "argmax", "argmin", "hardmax", "log_softmax", "reduce_l1", "reduce_l2", "reduce_log_sum_exp", "reduce_max",
    "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "reduce_sum_square", "softmax",
]

Axes = Any  # an int, an Axis, a list of them, or None for all static axes


def as_axis(axis: AxisLike | None) -> Axis:
    """The Axis for a user's argument: a static index, an Axis, or None for all static axes.

    Errors: TypeError for anything else.

    >>> as_axis(-1), as_axis(None)
    (Axis('staticAxisIdx=-1'), Axis('AllStaticAxes'))
    """
    if axis is None:
        return ALL_STATIC
    if not isinstance(axis, (int, Axis)) and not hasattr(axis, "__index__"):
        raise TypeError(f"an axis must be an int, an Axis or None, got {axis!r}")
    return Axis(axis)


def _as_axes(axis: Axes) -> list[Axis]:
    return [as_axis(a) for a in (axis if isinstance(axis, (list, tuple)) else [axis])]


def _node(reduction: str, x: Variable, axes: list[Axis], keep: bool, name: str = "") -> Function:
    attributes = {"axisVec": axes, "reductionOpName": reduction, "reductionKeepDimensions": keep}
    return node(_primitives.ReduceElements, [x], attributes, name)


def _along_each(reduction: str, axes: list[Axis], x: Variable) -> Function:
    """Reduce all static axes in one node, then the dynamic axes in another, as CNTK does."""
    static = [a for a in axes if a.is_static_axis]
    rest = [a for a in axes if not a.is_static_axis]
    if not rest:
        return _node(reduction, x, static, True, "_static_axes_subop")
    if static:
        x = _node(reduction, x, static, True, "_static_axes_subop").output
    return _node(reduction, x, rest, True, "_batch_axes_subop")


def _without(axes: list[Axis], x: Function) -> Function:
    """Drop the static axes that were reduced to 1."""
    static = [a for a in axes if a.is_static_axis]
    if not static:
        return x
    if is_unknown(x.shape) or x.shape.count(FREE) > 1:  # of which a reshape does not know which size is whose
        return node(Squeeze, [x.output], {"axisVec": static})
    reduced = {a.static_axis_index() % len(x.shape) for a in static}
    return reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in reduced))


def _reduced(reduction: str, x: Operand, axes: list[Axis], keepdims: bool, name: str = "") -> Function:
    attributes = {"axisVec": axes, "reductionKeepDimensions": keepdims, "reductionOpName": reduction}

    def inner(v: Variable) -> Function:
        if axes in ([ALL_STATIC], [ALL_AXES]):
            return _node(reduction, v, axes, False)
        reduced = as_one_block("MultiAxisReduce", partial(_along_each, reduction, axes), [v])
        return reduced if keepdims else _without(axes, reduced)

    return as_one_block("ReduceElements", inner, [as_variable(x)], name, attributes)


def _block(
    op_name: str, f: Callable[[Variable, list[Axis]], Function], x: Operand, axis: Axes, keepdims: bool, name: str
) -> Function:
    """A block that reduces with `keepdims` and drops the reduced axes at its end if they are not to be kept."""
    axes = _as_axes(axis)
    attributes = {"axisVec": axes, "reductionKeepDimensions": keepdims}

    def inner(v: Variable) -> Function:
        reduced = f(v, axes)
        return reduced if keepdims else _without(axes, reduced)

    return as_one_block(op_name, inner, [as_variable(x)], name, attributes)


@public_operation
def reduce_sum(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Sum over one or more axes.

    Shapes: a reduced static axis has size 1, or is dropped without `keepdims`; ``axis=None`` reduces all static axes
            to a scalar. ``Axis.default_batch_axis()`` removes the batch axis, the sequence axis gives one value for
            each sequence (not supported by CNTK itself), and ``Axis.all_axes()`` gives a single number.
    Errors: AxisError for an axis that x does not have, and for the batch axis if x has a sequence axis.

    >>> reduce_sum([[1, 2], [3, 4]], axis=0).eval()
    array([[4., 6.]], dtype=float32)
    >>> reduce_sum([[1, 2], [3, 4]]).eval()
    array(10., dtype=float32)
    """
    return _reduced("Sum", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_mean(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Mean over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_mean([[1, 2], [3, 4]], axis=1).eval()
    array([[1.5],
           [3.5]], dtype=float32)
    """
    return _reduced("Mean", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_max(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Maximum over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    In a tie each of the largest elements receives the full gradient.

    >>> reduce_max([[1, 2], [3, 4]], axis=1, keepdims=False).eval()
    array([2., 4.], dtype=float32)
    """
    return _reduced("Max", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_min(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Minimum over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_min([[1, 2], [3, 4]]).eval()
    array(1., dtype=float32)
    """
    return _reduced("Min", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_prod(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Product over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_prod([[1, 2], [3, 4]], axis=0).eval()
    array([[3., 8.]], dtype=float32)
    """
    return _reduced("Prod", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_log_sum_exp(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """log(sum(exp(x))) over one or more axes, computed without overflow.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_log_sum_exp([1000, 1000]).eval()
    array(1000.6932, dtype=float32)
    """
    return _reduced("LogSum", x, _as_axes(axis), keepdims, name)


@public_operation
def reduce_l1(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """L1 norm (sum of absolute values) over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_l1([[1, -2], [3, -4]], axis=1).eval()
    array([[3.],
           [7.]], dtype=float32)
    """
    return _block("ReduceL1", lambda v, axes: _reduced("Sum", abs(v), axes, True), x, axis, keepdims, name)


@public_operation
def reduce_sum_square(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """Sum of squares over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_sum_square([3, 4]).eval()
    array(25., dtype=float32)
    """
    def f(v: Variable, axes: list[Axis]) -> Function:
        return _reduced("Sum", element_times(v, v), axes, True)

    return _block("ReduceSumSquare", f, x, axis, keepdims, name)


@public_operation
def reduce_l2(x: Operand, axis: Axes = None, keepdims: bool = True, name: str = "") -> Function:
    """L2 norm (square root of the sum of squares) over one or more axes.

    Shapes: see `reduce_sum`, which has the same axes.

    >>> reduce_l2([3, 4]).eval()
    array(5., dtype=float32)
    """
    return _block("ReduceL2", lambda v, axes: sqrt(reduce_sum_square(v, axes)), x, axis, keepdims, name)


@public_operation
def argmax(x: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """The index of the largest element along a static axis, or in the flattened sample; in a tie the first one.

    Shapes: [*shape] -> the axis has size 1; [] with ``axis=None``.

    >>> argmax([[1, 9, 3], [4, 5, 6]], axis=1).eval()
    array([[1.],
           [2.]], dtype=float32)
    """
    return _position("Argmax", x, axis, name)


@public_operation
def argmin(x: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """The index of the smallest element along a static axis, or in the flattened sample; in a tie the first one.

    Shapes: [*shape] -> the axis has size 1; [] with ``axis=None``.

    >>> argmin([[1, 9, 3], [4, 5, 6]]).eval()
    array(0., dtype=float32)
    """
    return _position("Argmin", x, axis, name)


def _position(reduction: str, x: Operand, axis: AxisLike | None, name: str) -> Function:
    axis = as_axis(axis)
    attributes = {"axis": axis, "reductionOpName": reduction, "reductionKeepDimensions": axis != ALL_STATIC}
    return node(_primitives.ReduceElements, [as_variable(x)], attributes, name)


# ---- softmax
def along(reduction: str, x: Operand, axis: Axis) -> Function:
    """A reduction along one axis, which is kept with size 1, as a single node."""
    attributes = {"axis": axis, "reductionOpName": reduction, "reductionKeepDimensions": True}
    return node(_primitives.ReduceElements, [as_variable(x)], attributes)


@public_operation
def softmax(x: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """exp(x) / sum(exp(x)) along a static axis.

    By default the sum runs over all static axes of a sample, or along the last axis if x has no dynamic axes.

    Shapes: [*shape] -> [*shape].

    >>> softmax([0, 0]).eval()
    array([0.5, 0.5], dtype=float32)
    >>> softmax([[1, 1], [1, 1]], axis=0).eval()
    array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    x = as_variable(x)
    if axis is None or axis == ALL_STATIC:
        return node(_primitives.Softmax, [x], name=name)
    axis = as_axis(axis)
    if axis == Axis(-1) and (is_unknown(x.shape) or len(x.shape) == 1):
        return node(_primitives.Softmax, [x], {"axis": axis}, name)

    def inner(v: Variable) -> Function:
        shifted = exp(minus(v, along("Max", v, axis)))
        return element_divide(shifted, along("Sum", shifted, axis))

    return as_one_block("Softmax", inner, [x], name, {"axis": axis})


@public_operation
def log_softmax(x: Operand, axis: AxisLike | None = None, name: str = "") -> Function:
    """log(softmax(x)) along a static axis, by default the last one.

    Shapes: [*shape] -> [*shape].

    >>> log_softmax([[1, 1], [1, 1]]).eval()
    array([[-0.6931472, -0.6931472],
           [-0.6931472, -0.6931472]], dtype=float32)
    """
    axis = as_axis(-1 if axis is None else axis)

    def inner(v: Variable) -> Function:
        largest = along("Max", v, axis)
        return minus(minus(v, largest), log(along("Sum", exp(minus(v, largest)), axis)))

    return as_one_block("LogSoftmax", inner, [as_variable(x)], name, {"axis": axis})


@public_operation
def hardmax(x: Operand, name: str = "") -> Function:
    """1 at the largest element of each sample (in a tie the first one), 0 elsewhere.

    Without dynamic axes, the largest element is taken along the last axis.

    Shapes: [*shape] -> [*shape].

    >>> hardmax([1, 3, 3, 2]).eval()
    array([0., 1., 0., 0.], dtype=float32)
    """
    return node(_primitives.Hardmax, [as_variable(x)], name=name)
