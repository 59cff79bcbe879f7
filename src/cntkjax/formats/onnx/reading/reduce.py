"""Reductions, softmax and the selection of the largest elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from .... import ops
from ....graph.axis import Axis
from ....ops.functions import Function
from ....variables import Constant
from .table import OnnxNode, reads
from .values import INT, Operand, Outputs, apply_primitive

_REDUCTIONS: dict[str, Callable[..., Function]] = {
    "ReduceSum": ops.reduce_sum, "ReduceMean": ops.reduce_mean, "ReduceMax": ops.reduce_max,
    "ReduceMin": ops.reduce_min, "ReduceProd": ops.reduce_prod, "ReduceLogSumExp": ops.reduce_log_sum_exp,
    "ReduceL1": ops.reduce_l1, "ReduceL2": ops.reduce_l2, "ReduceSumSquare": ops.reduce_sum_square,
    "ReduceLogSum": lambda x, axis, keepdims: ops.log(ops.reduce_sum(x, axis, keepdims)),
}


@reads(*_REDUCTIONS)
def _reduce(node: OnnxNode) -> Outputs:
    x, keep, axes = node.operand(), bool(node.integer("keepdims", 1)), node.axes(1)
    if not axes and node.integer("noop_with_empty_axes", 0):
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    rank = len(x.shape)
    dimensions = sorted({node.axis(a, rank) for a in axes}) if axes else list(range(rank))
    if not dimensions:
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    if not keep and len(dimensions) == rank:
        output = _REDUCTIONS[node.op](x, axis=Axis.all_static_axes(), keepdims=False)
    else:
        output = _REDUCTIONS[node.op](x, axis=dimensions if len(dimensions) > 1 else dimensions[0], keepdims=keep)
    return node.of_kind(output, node.tensor(0).kind)


@reads("ArgMax", "ArgMin")
def _position(node: OnnxNode) -> Outputs:
    x = node.operand()
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    is_last, size = node.integer("select_last_index", 0), x.shape[axis]
    if is_last and size < 0:
        raise node.error("the last one of equal elements along an open axis cannot be selected")
    index = (ops.argmax if node.op == "ArgMax" else ops.argmin)(ops.slice(x, axis, 0, 0, -1) if is_last else x, axis)
    index = ops.minus(Constant(size - 1, dtype=x.dtype), index) if is_last else index
    return node.of_kind(index if node.integer("keepdims", 1) else ops.squeeze(index, [axis]), INT)


@reads("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: OnnxNode) -> Outputs:
    """Along one axis; before opset 13 over this axis and all later ones together."""
    x = node.operand()
    rank = len(x.shape)
    axis = node.axis(node.integer("axis", -1 if node.opset >= 13 else 1), rank) if rank > 1 else 0
    make = {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": _hardmax}[node.op]
    if node.opset >= 13 or axis == rank - 1:
        return make(x, axis=axis) if rank > 1 else make(x, axis=0)
    if any(d < 0 for d in x.shape[axis:]):
        raise node.error(f"{node.op} over several axes of open size")
    flat = ops.reshape(x, (prod(x.shape[axis:]),), begin_axis=axis) if axis else ops.reshape(x, (-1,))
    return ops.reshape(make(flat, axis=axis), x.shape[axis:], begin_axis=axis, end_axis=axis + 1)


def _hardmax(x: Operand, axis: int) -> Operand:
    covers_sample = all(d == 1 for i, d in enumerate(x.shape) if i != axis)
    return ops.hardmax(x) if covers_sample else apply_primitive("Hardmax", [x], {"axis": Axis(axis)})


@reads("TopK")
def _top_k(node: OnnxNode) -> Outputs:
    x = node.operand()
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    k = node.integer("k", 0) if node.opset < 10 else node.integers(1, "k")[0]
    if not node.integer("largest", 1):
        values, indices = ops.top_k(ops.negate(x), k, axis - len(x.shape)).outputs
        return [node.of_kind(ops.negate(values), node.tensor(0).kind), node.of_kind(indices, INT)]
    values, indices = ops.top_k(x, k, axis - len(x.shape)).outputs
    return [node.of_kind(values, node.tensor(0).kind), node.of_kind(indices, INT)]


@reads("CumSum")
def _cumulative(node: OnnxNode) -> Outputs:
    """The product with a triangular matrix of ones."""
    x = node.operand()
    axis = node.axis(node.integers(1, "axis")[0], len(x.shape))
    n = x.shape[axis]
    if not 0 <= n <= 4096:
        raise node.error(f"sums along an axis of size {n} cannot be read")
    triangle = np.triu(np.ones((n, n), x.dtype), 1 if node.integer("exclusive", 0) else 0)
    triangle = triangle.T if node.integer("reverse", 0) else triangle
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    summed = ops.times(ops.transpose(x, order) if len(order) > 1 else x, Constant(triangle, dtype=x.dtype))
    return node.of_kind(ops.transpose(summed, np.argsort(order).tolist()) if len(order) > 1 else summed,
                        node.tensor(0).kind)
