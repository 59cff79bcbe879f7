"""One row for each primitive: what it is in calls that each target has.

A row gets the body that is being described and the node; it returns the expression of the output, or a list of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from ..graph.axis import ALL_AXES, ALL_STATIC, SEQUENCE
from ..graph.function import Node
from ..graph.shape import Shape
from ..graph.variable import Leaf, outside
from ..primitives.reshape import transposition
from .tree import Expression, Layer, Op, member, refuse

if TYPE_CHECKING:
    from .walk import Body

Row = Callable[["Body", Node], Expression | list[Expression]]
PRIMITIVES: dict[str, Row] = {}

_SAME = {"NoOp", "StopGradient", "Pass", "Combine"}
_UNARY = {
    "Negate": "negative", "Tanh": "tanh", "ReLU": "relu", "Exp": "exp", "Log": "safe_log", "Sqrt": "safe_sqrt",
    "Floor": "floor", "Abs": "abs", "Reciprocal": "reciprocal", "StableSigmoid": "sigmoid", "Sigmoid": "sigmoid",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh",
    "Cosh": "cosh", "Asinh": "arcsinh", "Acosh": "arccosh", "Atanh": "arctanh", "ELU": "elu",
}
_BINARY = {"Plus": "add", "Minus": "subtract", "ElementTimes": "multiply", "Pow": "power", "LogPlus": "logaddexp"}
_COMPARISONS = {
    "Less": "less", "Greater": "greater", "LessEqual": "less_equal", "GreaterEqual": "greater_equal", "Equal": "equal",
    "NotEqual": "not_equal",
}
_REDUCTIONS = {
    "Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "LogSum": "logsumexp",
    "Argmax": "argmax", "Argmin": "argmin",
}


def ports(*names: str) -> Callable[[Row], Row]:
    """Decorator: register a function as the row of primitives."""

    def register(row: Row) -> Row:
        PRIMITIVES.update(dict.fromkeys(names, row))
        return row

    return register


# ---- layouts
def reshaped(x: Expression, lead: int, shape: Shape, node: Node) -> Expression:
    """x with samples of another shape."""
    if sum(d < 0 for d in shape) > 1:
        raise refuse(node, f"the shape {shape} has free dimensions")
    return Op("reshape", (x,), {"lead": lead, "shape": tuple(d if d >= 0 else -1 for d in shape)})


def aligned(body: Body, node: Node) -> list[Expression]:
    """The operands of a node, with axes inserted so that they broadcast to its output as in NumPy."""
    out = node.node_outputs[0]
    result = []
    for v in node.node_inputs:
        missing = [1] if 0 < body.lead(v) < body.lead(out) else []
        if body.lead(v):
            missing += range(body.lead(out), body.lead(out) + len(out.shape) - len(v.shape))
        result.append(inserted(body.value(v), missing))
    return result


def inserted(x: Expression, axes: Sequence[int]) -> Expression:
    """x with axes of size 1 at these positions of the result."""
    return Op("expand_dims", (x,), {"axes": tuple(axes)}) if axes else x


# ---- element by element
@ports(*_SAME)
def _same(body: Body, node: Node) -> list[Expression]:
    return [body.value(v) for v in node.node_inputs]


@ports(*_UNARY)
def _unary(body: Body, node: Node) -> Expression:
    return Op(_UNARY[node.op_name], (body.value(node.node_inputs[0]),))


@ports(*_BINARY)
def _binary(body: Body, node: Node) -> Expression:
    if node in body.graph.absorbed:
        return next(body.value(v) for v in node.node_inputs if not isinstance(outside(v), Leaf))
    return Op(_BINARY[node.op_name], tuple(aligned(body, node)))


@ports(*_COMPARISONS)
def _comparison(body: Body, node: Node) -> Expression:
    flags = Op(_COMPARISONS[node.op_name], tuple(aligned(body, node)))
    return Op("cast", (flags,), {"dtype": np.dtype(node.node_outputs[0].dtype).name})


@ports("Cast")
def _cast(body: Body, node: Node) -> Expression:
    return Op("cast", (body.value(node.node_inputs[0]),), {"dtype": np.dtype(node.node_outputs[0].dtype).name})


@ports("Select")
def _select(body: Body, node: Node) -> Expression:
    flag, yes, no = aligned(body, node)
    return Op("where", (Op("not_equal", (flag, Op("scalar", (), {"value": 0.0}))), yes, no))


@ports("Clip")
def _clip(body: Body, node: Node) -> Expression:
    x, low, high = aligned(body, node)
    return Op("minimum", (Op("maximum", (x, low)), high))


@ports("Dropout")
def _dropout(body: Body, node: Node) -> Expression:
    layer = Layer("Dropout", {"rate": float(node.node_attributes["dropoutRate"])}, {})
    return member(body.member_name(node.name or "dropout", layer), body.value(node.node_inputs[0]))


# ---- along axes
@ports("Softmax", "LogSoftmax")
def _softmax(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    axis = node.node_attributes.get("axis", ALL_STATIC)
    op = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[node.op_name]
    if axis.is_static_axis:
        return Op(op, (body.value(x),), {"axis": body.lead(x) + axis.static_axis_index() % len(x.shape)})
    if len(x.shape) <= 1:
        return Op(op, (body.value(x),), {"axis": body.lead(x)})
    flat = Op(op, (reshaped(body.value(x), body.lead(x), (prod(x.shape),), node),), {"axis": body.lead(x)})
    return reshaped(flat, body.lead(x), x.shape, node)


@ports("ReduceElements")
def _reduce(body: Body, node: Node) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    op = a["reductionOpName"]
    axes = [a["axis"]] if "axis" in a else list(a["axisVec"])
    over_all = ALL_STATIC in axes or (ALL_AXES in axes and not body.lead(x))
    if axes == [SEQUENCE] or (len(axes) == 1 and axes[0] == x.sequence_axis):
        return reduced_steps(body, node, op)
    if not over_all and not all(v.is_static_axis for v in axes):
        raise refuse(node, "a reduction over the batch cannot be ported")
    static = range(len(x.shape)) if over_all else sorted(v.static_axis_index() % len(x.shape) for v in axes)
    positions = tuple(body.lead(x) + i for i in static)
    keep = bool(a.get("reductionKeepDimensions", True)) and not over_all
    if op in ("Argmax", "Argmin"):
        if len(positions) != 1:
            raise refuse(node, f"{op} over {'several axes' if positions else 'no axis'} cannot be ported")
        index = Op(_REDUCTIONS[op], (body.value(x),), {"axis": positions[0], "keepdims": keep})
        return Op("cast", (index,), {"dtype": np.dtype(node.node_outputs[0].dtype).name})
    return Op(_REDUCTIONS[op], (body.value(x),), {"axis": positions, "keepdims": keep}) if positions else body.value(x)


_NEUTRAL = {"Sum": 0.0, "Mean": 0.0, "Max": -inf, "Min": inf, "LogSum": -inf, "Prod": 1.0}


def reduced_steps(body: Body, node: Node, op: str) -> Expression:
    """A reduction over the steps of each sequence."""
    (x,) = node.node_inputs
    if op not in _NEUTRAL or x.sequence_axis is None or x.sequence_axis == body.step_axis:
        raise refuse(node, f"a reduction {op} over the steps of a sequence cannot be ported")
    lengths = body.lengths(x.sequence_axis)
    masked = Op("masked", (body.value(x), lengths), {"value": _NEUTRAL[op]})
    if op != "Mean":
        return Op(_REDUCTIONS[op], (masked,), {"axis": (1,), "keepdims": False})
    total = Op("sum", (masked,), {"axis": (1,), "keepdims": False})
    count = Op("reshape", (lengths,), {"lead": 1, "shape": (1,) * len(x.shape)})
    return Op("divide", (total, count))


# ---- shapes
@ports("Reshape", "Squeeze")
def _reshape(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    return reshaped(body.value(x), body.lead(x), node.node_outputs[0].shape, node)


@ports("TransposeAxes")
def _transpose(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    lead, order = body.lead(x), transposition(node.node_attributes, len(x.shape))
    value = inserted(body.value(x), range(lead, lead + len(order) - len(x.shape)))
    return Op("transpose", (value,), {"order": (*range(lead), *(lead + i for i in order))})


@ports("Slice")
def _slice(body: Body, node: Node) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    several = "axisVec" in a
    axes = a["axisVec"] if several else [a["axis"]]
    begins, ends = (a[k + "Vec"] if several else [a[k]] for k in ("beginIndex", "endIndex"))
    strides = (a.get("sliceStridesVec") if several else [a.get("sliceStrides", 1)]) or [1] * len(axes)
    if min(strides) < 1:
        raise refuse(node, "a slice in reverse order cannot be ported")
    slices = [":"] * (body.lead(x) + len(x.shape))
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        text = f"{int(begin) or ''}:{int(end) or ''}" + (f":{int(stride)}" if stride != 1 else "")
        slices[body.lead(x) + axis.static_axis_index() % len(x.shape)] = text
    return Op("slice", (body.value(x),), {"slices": ", ".join(slices)})


@ports("Splice")
def _splice(body: Body, node: Node) -> Expression:
    out = node.node_outputs[0]
    axis = node.node_attributes["axis"].static_axis_index() % len(out.shape)
    if any(body.lead(v) != body.lead(out) or _unlike(v.shape, out.shape, axis) for v in node.node_inputs):
        raise refuse(node, "its operands have to be repeated to be joined, which cannot be ported")
    parts = tuple(aligned(body, node))
    return Op("concatenate", parts, {"axis": body.lead(out) + axis})


def _unlike(shape: Shape, out: Shape, axis: int) -> bool:
    shape = (1,) * (len(out) - len(shape)) + shape
    return any(d != o for i, (d, o) in enumerate(zip(shape, out, strict=True)) if i != axis)


__all__ = ["PRIMITIVES", "Row", "aligned", "inserted", "ports", "reshaped"]
