"""Reductions, softmax and the choice of largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.axis import ALL_AXES, ALL_STATIC, BATCH, Axis
from ....graph.function import Function
from ....graph.variable import Variable
from .._onnx import INT64
from .graph import OPEN, ExportError, Writer
from .table import operands, writes, writes_block

_REDUCTIONS = {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd",
    "LogSum": "ReduceLogSumExp", "Argmax": "ArgMax", "Argmin": "ArgMin",
}  # fmt: skip


def _axes(attributes: dict[str, Any]) -> list[Axis]:
    return [attributes["axis"]] if "axis" in attributes else list(attributes["axisVec"])


def _places(w: Writer, axes: Sequence[Axis], x: Variable) -> tuple[list[int], list[int]]:
    """Dimensions to reduce: those of dynamic axes, which always vanish, and those of samples."""
    lead, rank = w.lead(x), len(x.shape)
    dynamic: list[int] = []
    if ALL_AXES in axes or BATCH in axes:
        dynamic = list(range(lead))
    elif any(a.is_sequence_axis for a in axes):
        dynamic = [0]
    if ALL_AXES in axes or ALL_STATIC in axes:
        return dynamic, list(range(lead, lead + rank))
    return dynamic, sorted(lead + a.static_axis_index() % rank for a in axes if a.is_static_axis)


@writes("ReduceElements")
def _reduce(w: Writer, node: Function, x: str) -> str:
    return _reduced(w, _REDUCTIONS[node.node_attributes["reductionOpName"]], node, w.inputs(node)[0], x)


def _reduced(w: Writer, op: str, node: Function, variable: Variable, x: str) -> str:
    axes = _axes(node.node_attributes)
    dynamic, static = _places(w, axes, variable)
    whole = bool({ALL_AXES, ALL_STATIC} & set(axes))
    keep = bool(node.node_attributes.get("reductionKeepDimensions", True)) and not whole
    places = dynamic + static
    if not places:
        return x
    if op not in ("ArgMax", "ArgMin"):
        made = w.reduce(op, x, places, keep)
        return w.squeeze(made, dynamic) if keep else made
    if len(places) > 1:
        if places != list(range(places[0], places[-1] + 1)):
            raise ExportError(f"{node!r}: ONNX finds the largest element along one axis only")
        rest = variable.shape[places[-1] + 1 - w.lead(variable) :]
        x, keep = w.reshape(x, *(0,) * places[0], OPEN, *rest), False
    return w.cast(w.node(op, [x], axis=places[0], keepdims=int(keep and not dynamic)), node.node_outputs[0].dtype)


def _has_axes(block: Function) -> bool:
    return bool({"axis", "axisVec"} & set(block.node_attributes))


@writes_block("ReduceL1", "ReduceL2", "ReduceSumSquare", fits=_has_axes)
def _reduce_block(w: Writer, node: Function, x: str) -> str:
    return _reduced(w, node.op_name, node, w.resolved(operands(node)[0]), x)


@writes("Softmax", "Hardmax", "LogSoftmax")
def _softmax(w: Writer, node: Function, x: str) -> str:
    return _along(w, node.op_name, x, w.inputs(node)[0], node.node_attributes.get("axis", ALL_STATIC))


@writes_block("Softmax", "LogSoftmax", fits=lambda b: "axis" in b.node_attributes)
def _softmax_block(w: Writer, node: Function, x: str) -> str:
    return _along(w, node.op_name, x, w.resolved(operands(node)[0]), node.node_attributes["axis"])


def _along(w: Writer, op: str, x: str, variable: Variable, axis: Axis) -> str:
    """Before opset 13 these run over all dimensions from the axis on, so that it has to be the last one."""
    lead, rank = w.lead(variable), len(variable.shape)
    if axis.is_static_axis:
        at = axis.static_axis_index() % rank
    elif rank <= 1 or not lead:  # what is no sample goes along its last axis
        at = rank - 1
    else:
        if w.opset < 13:
            return w.node(op, [x], axis=lead)
        flat = w.node(op, [w.reshape(x, *(0,) * lead, OPEN)], axis=lead)
        return w.node("Reshape", [flat, w.node("Shape", [x])])
    if rank == 0:
        flat = w.node(op, [w.unsqueeze(x, [lead])], axis=lead)
        return w.squeeze(flat, [lead])
    if w.opset >= 13 or at == rank - 1:
        return w.node(op, [x], axis=lead + at)
    order = list(range(lead + rank))
    order[lead + at], order[-1] = order[-1], order[lead + at]
    turned = w.node(op, [w.node("Transpose", [x], perm=order)], axis=lead + rank - 1)
    return w.node("Transpose", [turned], perm=order)


@writes("TopK")
def _top_k(w: Writer, node: Function, x: str) -> list[str]:
    variable, k = w.inputs(node)[0], node.node_attributes["numItems"]
    axis = w.lead(variable) + len(variable.shape) - 1
    if w.opset >= 10:
        values, indices = w.node("TopK", [x, w.ints(k)], 2, axis=axis)
    else:
        values, indices = w.node("TopK", [x], 2, axis=axis, k=int(k))
    return [values, w.cast(indices, node.node_outputs[1].dtype)]


@writes("CosDistance")
def _cosine(w: Writer, node: Function, *x: str) -> str:
    first, second = w.inputs(node)
    a, b = w.aligned([first, second])
    rank = max(len(first.shape), len(second.shape))
    lead = max(w.lead(first), w.lead(second))
    axes = list(range(lead, lead + rank))

    def product(p: str, q: str) -> str:
        return w.reduce("ReduceSum", w.node("Mul", [p, q]), axes, False)

    squares = w.node("Mul", [product(a, a), product(b, b)])
    return w.node("Div", [product(a, b), w.node("Sqrt", [squares])])


@writes("Gather")
def _gather(w: Writer, node: Function, reference: str, indices: str) -> str:
    source, _ = w.inputs(node)
    chosen = w.cast(indices, INT64)
    if not source.dynamic_axes:
        return w.node("Gather", [reference, chosen], axis=0)
    lead = w.lead(source)
    if w.opset < 12:
        raise ExportError(f"{node!r}: gathering from each sample needs opset 12 or later, not {w.opset}")
    chosen = w.unsqueeze(chosen, [lead + len(node.node_inputs[1].shape)])
    return w.node("GatherND", [reference, chosen], batch_dims=lead)
