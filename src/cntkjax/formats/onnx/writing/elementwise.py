"""Element-wise operations, and blocks of them that are one operation in ONNX."""

from __future__ import annotations

import numpy as np

from ....graph.function import Node
from ....graph.variable import Leaf, outside, value_of
from ..one_to_one import BINARY, COMPARISONS, LOGIC, UNARY
from .graph import GraphWriter
from .table import node_inside, operands, writes, writes_block

_UNARY = UNARY | {
    "NoOp": "Identity", "StopGradient": "Identity", "Pass": "Identity", "ELU": "Elu", "Sigmoid": "Sigmoid",
}  # fmt: skip  # these are read as other operations


@writes(*_UNARY)
def _unary(w: GraphWriter, node: Node, x: str) -> str:
    return w.node(_UNARY[node.op_name], [x])


@writes(*BINARY)
def _binary(w: GraphWriter, node: Node, *x: str) -> str:
    return w.node(BINARY[node.op_name], w.broadcastable(w.inputs(node)))


@writes(*COMPARISONS, "NotEqual", boolean=True)
def _compare(w: GraphWriter, node: Node, *x: str) -> str:
    return w.from_bool(_comparison(w, node.op_name, *w.broadcastable(w.inputs(node))), node.node_outputs[0])


def _comparison(w: GraphWriter, op: str, a: str, b: str) -> str:
    """A boolean tensor. Equal of floats exists from opset 11 on, LessOrEqual and GreaterOrEqual from 12 on."""
    if op in ("Less", "Greater"):
        return w.node(op, [a, b])
    if op == "NotEqual":
        if w.opset >= 11:
            return w.node("Not", [w.node("Equal", [a, b])])
        return w.node("Or", [w.node("Less", [a, b]), w.node("Greater", [a, b])])
    if op == "Equal":
        return w.node("Equal", [a, b]) if w.opset >= 11 else w.node("Not", [_comparison(w, "NotEqual", a, b)])
    if w.opset >= 12:
        return w.node(COMPARISONS[op], [a, b])
    return w.node("Not", [w.node("Greater" if op == "LessEqual" else "Less", [a, b])])


@writes("Select")
def _select(w: GraphWriter, node: Node, *x: str) -> str:
    flag, yes, no = w.broadcastable(w.inputs(node))
    return w.node("Where", [w.cast(flag, 9), yes, no])


@writes("Clip")
def _clip(w: GraphWriter, node: Node, x: str, low: str, high: str) -> str:
    _, *bounds = w.inputs(node)
    if all(isinstance(b, Leaf) and np.size(value_of(b)) == 1 for b in bounds):
        if w.opset < 11:
            least, most = (float(np.asarray(value_of(b)).reshape(())) for b in bounds if isinstance(b, Leaf))
            return w.node("Clip", [x], min=least, max=most)
        if all(b.shape == () for b in bounds):
            return w.node("Clip", [x, low, high])
    x, low, high = w.broadcastable(w.inputs(node))
    return w.node("Min", [w.node("Max", [x, low]), high])


@writes("LogPlus")
def _log_plus(w: GraphWriter, node: Node, *x: str) -> str:
    a, b = w.broadcastable(w.inputs(node))
    larger = w.node("Max", [a, b])
    terms = [w.node("Exp", [w.node("Sub", [v, larger])]) for v in (a, b)]
    return w.node("Add", [w.node("Log", [w.node("Add", terms)]), larger])


@writes("StraightThrough")
def _straight_through(w: GraphWriter, node: Node, x: str) -> str:
    out = node.node_outputs[0]
    positive = w.node("Greater", [x, w.scalar(0, out)])
    return w.node("Where", [positive, w.scalar(1, out), w.scalar(-1, out)])


@writes("Cast")
def _cast(w: GraphWriter, node: Node, x: str) -> str:
    return w.cast(x, node.node_outputs[0].dtype)


# ---- blocks
def _attributes(node: Node, *names: str) -> dict[str, float]:
    return {name: float(node.node_attributes[name]) for name in names}


@writes_block("LeakyReLU", matches=lambda b: "alpha" in b.node_attributes)
def _leaky_relu(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("LeakyRelu", [x], **_attributes(node, "alpha"))


@writes_block("ELU", matches=lambda b: "alpha" in b.node_attributes)
def _elu(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("Elu", [x], **_attributes(node, "alpha"))


@writes_block("SELU", matches=lambda b: {"alpha", "gamma"} <= set(b.node_attributes))
def _selu(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("Selu", [x], **_attributes(node, "alpha", "gamma"))


@writes_block("HardSigmoid", matches=lambda b: {"alpha", "beta"} <= set(b.node_attributes))
def _hard_sigmoid(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("HardSigmoid", [x], **_attributes(node, "alpha", "beta"))


@writes_block("Softsign")
def _softsign(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("Softsign", [x])


@writes_block("Softplus", matches=lambda b: len(operands(b)) == 1)
def _softplus(w: GraphWriter, node: Node, x: str) -> str:
    return w.node("Softplus", [x])


@writes_block("PReLU")
def _prelu(w: GraphWriter, node: Node, *x: str) -> str:
    x_inside = node_inside(node, "Less").node_inputs[0]
    slope = next(v for v in node_inside(node, "ElementTimes").node_inputs if v is not x_inside)
    value = w.resolve(outside(x_inside))
    alpha = w.resolve(outside(slope))
    a, b = w.broadcastable([value, alpha])
    if len(alpha.shape) > len(value.shape) or alpha.dynamic_axes:  # PRelu does not broadcast these
        negative = w.node("Less", [a, w.scalar(0, value)])
        return w.node("Where", [negative, w.node("Mul", [a, b]), a])
    return w.node("PRelu", [a, b])


@writes_block("ElementDivide")
def _divide(w: GraphWriter, node: Node, *x: str) -> str:
    divisor = outside(node_inside(node, "Reciprocal").node_inputs[0])
    dividend = next((v for v in operands(node) if v is not divisor), divisor)
    return w.node("Div", w.broadcastable([w.resolve(dividend), w.resolve(divisor)]))


@writes_block("ElementMax", "ElementMin", "Sum", "Mean")
def _variadic(w: GraphWriter, node: Node, *x: str) -> str:
    op = {"ElementMax": "Max", "ElementMin": "Min"}.get(node.op_name, node.op_name)
    return w.node(op, w.broadcastable([w.resolve(v) for v in operands(node)]))


@writes_block(*LOGIC, boolean=True)
def _logic(w: GraphWriter, node: Node, *x: str) -> str:
    flags = [w.node("Greater", [t, w.scalar(0, node.node_outputs[0])])
             for t in w.broadcastable([w.resolve(v) for v in operands(node)])]
    return w.from_bool(w.node(node.op_name, flags), node.node_outputs[0])
