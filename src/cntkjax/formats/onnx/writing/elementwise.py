"""Operations element by element, and the blocks of them that ONNX has as one operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.function import Function
from ....graph.variable import Leaf
from .graph import Writer
from .table import inside, operands, role, writes, writes_block

_UNARY = {
    "Negate": "Neg", "Tanh": "Tanh", "ReLU": "Relu", "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "Floor": "Floor",
    "Abs": "Abs", "Reciprocal": "Reciprocal", "Sin": "Sin", "Cos": "Cos", "NoOp": "Identity",
    "StopGradient": "Identity", "ELU": "Elu", "StableSigmoid": "Sigmoid", "Sinh": "Sinh", "Cosh": "Cosh",
    "Asin": "Asin", "Acos": "Acos", "Atanh": "Atanh", "Asinh": "Asinh", "Tan": "Tan", "Atan": "Atan",
    "Sigmoid": "Sigmoid", "Pass": "Identity",
}  # fmt: skip
_BINARY = {"Plus": "Add", "Minus": "Sub", "ElementTimes": "Mul", "Pow": "Pow"}


@writes(*_UNARY)
def _unary(w: Writer, node: Function, x: str) -> str:
    return w.node(_UNARY[node.op_name], [x])


@writes(*_BINARY)
def _binary(w: Writer, node: Function, *x: str) -> str:
    return w.node(_BINARY[node.op_name], w.aligned(w.inputs(node)))


@writes("Less", "Greater", "LessEqual", "GreaterEqual", "Equal", "NotEqual")
def _compare(w: Writer, node: Function, *x: str) -> str:
    return w.truth(_comparison(w, node.op_name, *w.aligned(w.inputs(node))), node.node_outputs[0])


def _comparison(w: Writer, op: str, a: str, b: str) -> str:
    """A boolean tensor. Before opset 11 there is no Equal of floats, and before 12 no LessOrEqual."""
    if op in ("Less", "Greater"):
        return w.node(op, [a, b])
    if op == "NotEqual":
        if w.opset >= 11:
            return w.node("Not", [w.node("Equal", [a, b])])
        return w.node("Or", [w.node("Less", [a, b]), w.node("Greater", [a, b])])
    if op == "Equal":
        return w.node("Equal", [a, b]) if w.opset >= 11 else w.node("Not", [_comparison(w, "NotEqual", a, b)])
    if w.opset >= 12:
        return w.node({"LessEqual": "LessOrEqual", "GreaterEqual": "GreaterOrEqual"}[op], [a, b])
    return w.node("Not", [w.node("Greater" if op == "LessEqual" else "Less", [a, b])])


@writes("Select")
def _select(w: Writer, node: Function, *x: str) -> str:
    flag, yes, no = w.aligned(w.inputs(node))
    return w.node("Where", [w.cast(flag, 9), yes, no])


@writes("Clip")
def _clip(w: Writer, node: Function, x: str, low: str, high: str) -> str:
    _, *bounds = w.inputs(node)
    if all(isinstance(b, Leaf) and np.size(b._value) == 1 for b in bounds):
        if w.opset < 11:
            least, most = (float(np.asarray(b._value).reshape(())) for b in bounds if isinstance(b, Leaf))
            return w.node("Clip", [x], min=least, max=most)
        if all(b.shape == () for b in bounds):
            return w.node("Clip", [x, low, high])
    x, low, high = w.aligned(w.inputs(node))
    return w.node("Min", [w.node("Max", [x, low]), high])


@writes("LogPlus")
def _log_plus(w: Writer, node: Function, *x: str) -> str:
    a, b = w.aligned(w.inputs(node))
    larger = w.node("Max", [a, b])
    terms = [w.node("Exp", [w.node("Sub", [v, larger])]) for v in (a, b)]
    return w.node("Add", [w.node("Log", [w.node("Add", terms)]), larger])


@writes("StraightThrough")
def _straight_through(w: Writer, node: Function, x: str) -> str:
    out = node.node_outputs[0]
    positive = w.node("Greater", [x, w.number(0, out)])
    return w.node("Where", [positive, w.number(1, out), w.number(-1, out)])


@writes("Cast")
def _cast(w: Writer, node: Function, x: str) -> str:
    return w.cast(x, node.node_outputs[0].dtype)


# ---- blocks
def _attribute(node: Function, *names: str) -> dict[str, Any]:
    return {name: float(node.node_attributes[name]) for name in names}


@writes_block("LeakyReLU", fits=lambda b: "alpha" in b.node_attributes)
def _leaky_relu(w: Writer, node: Function, x: str) -> str:
    return w.node("LeakyRelu", [x], **_attribute(node, "alpha"))


@writes_block("ELU", fits=lambda b: "alpha" in b.node_attributes)
def _elu(w: Writer, node: Function, x: str) -> str:
    return w.node("Elu", [x], **_attribute(node, "alpha"))


@writes_block("SELU", fits=lambda b: {"alpha", "gamma"} <= set(b.node_attributes))
def _selu(w: Writer, node: Function, x: str) -> str:
    return w.node("Selu", [x], **_attribute(node, "alpha", "gamma"))


@writes_block("HardSigmoid", fits=lambda b: {"alpha", "beta"} <= set(b.node_attributes))
def _hard_sigmoid(w: Writer, node: Function, x: str) -> str:
    return w.node("HardSigmoid", [x], **_attribute(node, "alpha", "beta"))


@writes_block("Softsign")
def _softsign(w: Writer, node: Function, x: str) -> str:
    return w.node("Softsign", [x])


@writes_block("Softplus", fits=lambda b: len(operands(b)) == 1)
def _softplus(w: Writer, node: Function, x: str) -> str:
    return w.node("Softplus", [x])


@writes_block("PReLU")
def _prelu(w: Writer, node: Function, *x: str) -> str:
    slope = next(v for v in inside(node, "ElementTimes").node_inputs if v is not inside(node, "Less").node_inputs[0])
    value = w.resolved(role(inside(node, "Less").node_inputs[0]))
    alpha = w.resolved(role(slope))
    a, b = w.aligned([value, alpha])
    if len(alpha.shape) > len(value.shape) or alpha.dynamic_axes:  # what ONNX's own operation does not broadcast
        negative = w.node("Less", [a, w.number(0, value)])
        return w.node("Where", [negative, w.node("Mul", [a, b]), a])
    return w.node("PRelu", [a, b])


@writes_block("ElementDivide")
def _divide(w: Writer, node: Function, *x: str) -> str:
    below = role(inside(node, "Reciprocal").node_inputs[0])
    above = next((v for v in operands(node) if v is not below), below)
    return w.node("Div", w.aligned([w.resolved(above), w.resolved(below)]))


@writes_block("ElementMax", "ElementMin", "Sum", "Mean")
def _several(w: Writer, node: Function, *x: str) -> str:
    op = {"ElementMax": "Max", "ElementMin": "Min"}.get(node.op_name, node.op_name)
    return w.node(op, w.aligned([w.resolved(v) for v in operands(node)]))


@writes_block("And", "Or", "Xor", "Not")
def _logic(w: Writer, node: Function, *x: str) -> Any:
    flags = [w.node("Greater", [t, w.number(0, node.node_outputs[0])])
             for t in w.aligned([w.resolved(v) for v in operands(node)])]
    return w.truth(w.node(node.op_name, flags), node.node_outputs[0])
