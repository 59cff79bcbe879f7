"""Reductions, softmax and the selection of the largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.axis import ALL_AXES, ALL_STATIC, BATCH, Axis
from ....graph.function import Node
from ....graph.variable import Edge
from .._onnx import INT64
from .graph import OPEN, ExportError, GraphWriter
from .table import writes, writes_block

_REDUCTIONS = {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd",
    "LogSum": "ReduceLogSumExp", "Argmax": "ArgMax", "Argmin": "ArgMin",
}


def _axes(attributes: dict[str, Any]) -> list[Axis]:
    return [attributes["axis"]] if "axis" in attributes else list(attributes["axisVec"])


def _dimensions(w: GraphWriter, axes: Sequence[Axis], x: Edge) -> tuple[list[int], list[int]]:
    """The dimensions to reduce: those of dynamic axes, which are always dropped, and those of samples."""
    lead, rank = w.lead(x), len(x.shape)
    dynamic: list[int] = []
    if ALL_AXES in axes or BATCH in axes:
        dynamic = list(range(lead))
    elif any(a.is_sequence_axis for a in axes):
        dynamic = [0]
    if ALL_AXES in axes or ALL_STATIC in axes:
        return dynamic, list(range(lead, lead + rank))
    return dynamic, sorted(lead + a.static_axis_index() % rank for a in axes if a.is_static_axis)


_CHANGING_NUMBERS = "ReduceL1", "ReduceL2", "ReduceSumSquare", "ArgMax", "ArgMin"  # the others are numbers themselves


@writes("ReduceElements")
def _reduce(w: GraphWriter, node: Node, x: str) -> str:
    return _reduced(w, _REDUCTIONS[node.node_attributes["reductionOpName"]], node, w.inputs(node)[0], x)


def _reduced(w: GraphWriter, op: str, node: Node, variable: Edge, x: str) -> str:
    axes = _axes(node.node_attributes)
    dynamic, static = _dimensions(w, axes, variable)
    all_axes = bool({ALL_AXES, ALL_STATIC} & set(axes))
    keep = bool(node.node_attributes.get("reductionKeepDimensions", True)) and not all_axes
    dimensions = dynamic + static
    if not dimensions:
        if op not in _CHANGING_NUMBERS:
            return x
        dimensions, keep = [w.lead(variable)], False
        x = w.unsqueeze(x, dimensions)
    if op not in ("ArgMax", "ArgMin"):
        output = w.reduce(op, x, dimensions, keep)
        return w.squeeze(output, dynamic) if keep else output
    if len(dimensions) > 1:
        if dimensions != list(range(dimensions[0], dimensions[-1] + 1)):
            raise ExportError(f"{node!r}: ONNX finds the largest element along one axis only",
                              fix="reshape these axes to one before argmax or argmin")
        rest = variable.shape[dimensions[-1] + 1 - w.lead(variable) :]
        x, keep = w.reshape(x, *(0,) * dimensions[0], OPEN, *rest), False
    return w.cast(w.node(op, [x], axis=dimensions[0], keepdims=int(keep and not dynamic)), node.node_outputs[0].dtype)


def _has_axes(block: Node) -> bool:
    return bool({"axis", "axisVec"} & set(block.node_attributes))


@writes_block("ReduceL1", "ReduceL2", "ReduceSumSquare", matches=_has_axes)
def _reduce_block(w: GraphWriter, node: Node, x: str) -> str:
    return _reduced(w, node.op_name, node, w.block_operand(node), x)


@writes("Softmax", "Hardmax", "LogSoftmax")
def _softmax(w: GraphWriter, node: Node, x: str) -> str:
    return _along(w, node.op_name, x, w.inputs(node)[0], node.node_attributes.get("axis", ALL_STATIC))


@writes_block("Softmax", "LogSoftmax", matches=lambda b: "axis" in b.node_attributes)
def _softmax_block(w: GraphWriter, node: Node, x: str) -> str:
    return _along(w, node.op_name, x, w.block_operand(node), node.node_attributes["axis"])


def _along(w: GraphWriter, op: str, x: str, variable: Edge, axis: Axis) -> str:
    """Before opset 13 these operate on all dimensions from the axis on, so that the axis has to be the last one."""
    lead, rank = w.lead(variable), len(variable.shape)
    if axis.is_static_axis:
        position = axis.static_axis_index() % rank
    elif rank <= 1 or not lead:  # without dynamic axes, along the last axis
        position = rank - 1
    else:
        if w.opset < 13:
            return w.node(op, [x], axis=lead)
        flat = w.node(op, [w.reshape(x, *(0,) * lead, OPEN)], axis=lead)
        return w.node("Reshape", [flat, w.node("Shape", [x])])
    if rank == 0:
        flat = w.node(op, [w.unsqueeze(x, [lead])], axis=lead)
        return w.squeeze(flat, [lead])
    if w.opset >= 13 or position == rank - 1:
        return w.node(op, [x], axis=lead + position)
    order = list(range(lead + rank))
    order[lead + position], order[-1] = order[-1], order[lead + position]
    transposed = w.node(op, [w.node("Transpose", [x], perm=order)], axis=lead + rank - 1)
    return w.node("Transpose", [transposed], perm=order)


@writes("TopK")
def _top_k(w: GraphWriter, node: Node, x: str) -> list[str]:
    variable, k = w.inputs(node)[0], node.node_attributes["numItems"]
    axis = w.lead(variable) + max(len(variable.shape) - 1, 0)
    if not variable.shape:
        x = w.unsqueeze(x, [axis])
    if w.opset >= 10:
        values, indices = w.multi_node("TopK", [x, w.ints(k)], 2, axis=axis)
    else:
        values, indices = w.multi_node("TopK", [x], 2, axis=axis, k=int(k))
    if not variable.shape:
        values, indices = w.squeeze(values, [axis]), w.squeeze(indices, [axis])
    return [values, w.cast(indices, node.node_outputs[1].dtype)]


@writes("CosDistance")
def _cosine(w: GraphWriter, node: Node, *x: str) -> str:
    first, second = w.inputs(node)
    a, b = w.broadcastable([first, second])
    rank, leads = max(len(first.shape), len(second.shape)), (w.lead(first), w.lead(second))

    def product(p: str, q: str, lead: int) -> str:
        return w.reduce("ReduceSum", w.node("Mul", [p, q]), list(range(lead, lead + rank)), False)

    squares = w.node("Mul", [product(a, a, leads[0]), product(b, b, leads[1])])
    return w.node("Div", [product(a, b, max(leads)), w.node("Sqrt", [squares])])


@writes("Gather")
def _gather(w: GraphWriter, node: Node, reference: str, indices: str) -> str:
    source, _ = w.inputs(node)
    chosen = w.cast(indices, INT64)
    if not source.dynamic_axes:
        return w.node("Gather", [reference, chosen], axis=0)
    lead = w.lead(source)
    if w.opset < 12:
        raise ExportError(f"{node!r}: gathering from each sample needs opset 12 or later, not {w.opset}",
                          fix="save with opset=12 or later")
    chosen = w.unsqueeze(chosen, [lead + len(node.node_inputs[1].shape)])
    return w.node("GatherND", [reference, chosen], batch_dims=lead)
