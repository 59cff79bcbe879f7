"""Reductions, softmax and the choice of largest elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....graph.axis import Axis
from ....graph.build import apply
from ....primitives.base import BY_NAME
from ....variables import Constant
from .table import Node, reads
from .values import INT, output_of

_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": ops.reduce_sum, "ReduceMean": ops.reduce_mean, "ReduceMax": ops.reduce_max,
    "ReduceMin": ops.reduce_min, "ReduceProd": ops.reduce_prod, "ReduceLogSumExp": ops.reduce_log_sum_exp,
    "ReduceL1": ops.reduce_l1, "ReduceL2": ops.reduce_l2, "ReduceSumSquare": ops.reduce_sum_square,
    "ReduceLogSum": lambda x, axis, keepdims: ops.log(ops.reduce_sum(x, axis, keepdims)),
}


@reads(*_REDUCTIONS)
def _reduce(node: Node) -> Any:
    x, keep, axes = node.x(), bool(node.whole("keepdims", 1)), node.axes(1)
    if not axes and node.whole("noop_with_empty_axes", 0):
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    rank = len(x.shape)
    places = sorted({node.axis(a, rank) for a in axes}) if axes else list(range(rank))
    if not places:
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    if not keep and len(places) == rank:
        made = _REDUCTIONS[node.op](x, axis=Axis.all_static_axes(), keepdims=False)
    else:
        made = _REDUCTIONS[node.op](x, axis=places if len(places) > 1 else places[0], keepdims=keep)
    return node.of_kind(made, node.tensor(0).kind)


@reads("ArgMax", "ArgMin")
def _position(node: Node) -> Any:
    x = node.x()
    axis = node.axis(node.whole("axis", 0), len(x.shape))
    if node.whole("select_last_index", 0):
        raise node.fail("the last of equal elements cannot be chosen")
    made = (ops.argmax if node.op == "ArgMax" else ops.argmin)(x, axis)
    return node.of_kind(made if node.whole("keepdims", 1) else ops.squeeze(made, [axis]), INT)


@reads("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: Node) -> Any:
    """Along one axis; before opset 13 over this one and all behind it together."""
    x = node.x()
    rank = len(x.shape)
    axis = node.axis(node.whole("axis", -1 if node.opset >= 13 else 1), rank) if rank > 1 else 0
    make = {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": _hardmax}[node.op]
    if node.opset >= 13 or axis == rank - 1:
        return make(x, axis=axis) if rank > 1 else make(x, axis=0)
    if any(d < 0 for d in x.shape[axis:]):
        raise node.fail(f"{node.op} over several axes of open size")
    flat = ops.reshape(x, (prod(x.shape[axis:]),), begin_axis=axis) if axis else ops.reshape(x, (-1,))
    return ops.reshape(make(flat, axis=axis), x.shape[axis:], begin_axis=axis, end_axis=axis + 1)


def _hardmax(x: Any, axis: int) -> Any:
    whole = all(d == 1 for i, d in enumerate(x.shape) if i != axis)
    return ops.hardmax(x) if whole else apply(BY_NAME["Hardmax"], [output_of(x)], {"axis": Axis(axis)})


@reads("TopK")
def _top_k(node: Node) -> Any:
    x = node.x()
    axis = node.axis(node.whole("axis", -1), len(x.shape))
    k = node.whole("k", 0) if node.opset < 10 else node.integers(1, "k")[0]
    if not node.whole("largest", 1):
        values, indices = ops.top_k(ops.negate(x), k, axis - len(x.shape)).outputs
        return [node.of_kind(ops.negate(values), node.tensor(0).kind), node.of_kind(indices, INT)]
    values, indices = ops.top_k(x, k, axis - len(x.shape)).outputs
    return [node.of_kind(values, node.tensor(0).kind), node.of_kind(indices, INT)]


@reads("CumSum")
def _cumulative(node: Node) -> Any:
    """A product with a triangle of ones."""
    x = node.x()
    axis = node.axis(node.integers(1, "axis")[0], len(x.shape))
    n = x.shape[axis]
    if not 0 <= n <= 4096:
        raise node.fail(f"sums along an axis of size {n} cannot be read")
    triangle = np.triu(np.ones((n, n), x.dtype), 1 if node.whole("exclusive", 0) else 0)
    triangle = triangle.T if node.whole("reverse", 0) else triangle
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    summed = ops.times(ops.transpose(x, order) if len(order) > 1 else x, Constant(triangle, dtype=x.dtype))
    return node.of_kind(ops.transpose(summed, np.argsort(order).tolist()) if len(order) > 1 else summed,
                        node.tensor(0).kind)
