"""Operations element by element."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from .... import ops
from ....graph.build import apply
from ....primitives.base import BY_NAME
from ....variables import Constant
from .table import Node, folds, reads
from .values import BOOL, FLOAT, INT

_UNARY: dict[str, Any] = {
    "Neg": ops.negate, "Tanh": ops.tanh, "Relu": ops.relu, "Exp": ops.exp, "Log": ops.log, "Sqrt": ops.sqrt,
    "Floor": ops.floor, "Ceil": ops.ceil, "Abs": ops.abs, "Reciprocal": ops.reciprocal, "Sin": ops.sin,
    "Cos": ops.cos, "Sigmoid": ops.sigmoid, "Sinh": ops.sinh, "Cosh": ops.cosh, "Asin": ops.asin, "Acos": ops.acos,
    "Atanh": ops.atanh, "Asinh": ops.asinh, "Tan": ops.tan, "Atan": ops.atan, "Softplus": ops.softplus,
    "Softsign": ops.softsign,
}  # fmt: skip


@reads(*_UNARY)
def _unary(node: Node) -> Any:
    return node.of_kind(_UNARY[node.op](node.x()))


@reads("Identity", "Cast", "CastLike")
def _cast(node: Node) -> Any:
    """Integers are held as floats here: casts to them cut off the fraction, and to truth values give 0 and 1."""
    source = node.tensor(0)
    if node.op == "Identity":
        return node.of_kind(ops.alias(source.variable))
    if node.op == "CastLike":
        kind = node.tensor(1).kind
        dtype = node.x(1).dtype if kind == FLOAT else None
    else:
        to = node.whole("to", 1)
        kind = FLOAT if to in (1, 10, 11) else BOOL if to == 9 else INT if to in (2, 3, 4, 5, 6, 7, 12, 13) else ""
        if not kind:
            raise node.fail(f"a cast to element type {to} cannot be read")
        dtype = {1: np.float32, 10: np.float16, 11: np.float64}.get(to)
    x = source.variable
    if kind == FLOAT:
        return node.of_kind(ops.cast(x, dtype) if x.dtype is not dtype else ops.alias(x), kind)
    if kind == BOOL:
        made = ops.alias(x) if source.kind == BOOL else ops.not_equal(x, _number(0, x))
    else:
        made = ops.alias(x) if source.kind != FLOAT else _truncated(x)
    return node.of_kind(made, kind)


def _number(value: float, like: Any) -> Any:
    return Constant(float(value), dtype=like.dtype)


def _truncated(x: Any) -> Any:
    sign = ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x)))
    return ops.element_times(sign, ops.floor(ops.abs(x)))


@reads("Add", "Sub", "Mul", "Pow")
def _binary(node: Node) -> Any:
    make = {"Add": ops.plus, "Sub": ops.minus, "Mul": ops.element_times, "Pow": ops.pow}[node.op]
    a, b = _alike(node)
    return node.of_kind(make(a, b))


def _alike(node: Node) -> list[Any]:
    """Two operands of one type: only in exponents and the like they may differ."""
    a, b = node.x(0), node.x(1)
    return [a, b if a.dtype is b.dtype else ops.cast(b, a.dtype)]


@reads("Div")
def _div(node: Node) -> Any:
    made = ops.element_divide(*_alike(node))
    return node.of_kind(_truncated(made) if node.kind == INT else made)


@reads("Mod")
def _mod(node: Node) -> Any:
    a, b = _alike(node)
    quotient = ops.element_divide(a, b)
    whole = _truncated(quotient) if node.whole("fmod", 0) else ops.floor(quotient)
    return node.of_kind(ops.minus(a, ops.element_times(b, whole)))


@reads("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")
def _compare(node: Node) -> Any:
    make = {"Less": ops.less, "Greater": ops.greater, "LessOrEqual": ops.less_equal,
            "GreaterOrEqual": ops.greater_equal, "Equal": ops.equal}[node.op]
    return node.of_kind(make(*_alike(node)), BOOL)


@reads("And", "Or", "Xor", "Not")
def _logic(node: Node) -> Any:
    make: Any = {"And": ops.element_and, "Or": ops.element_or, "Xor": ops.element_xor, "Not": ops.element_not}[node.op]
    return node.of_kind(make(*node.xs()), BOOL)


@reads("Where")
def _where(node: Node) -> Any:
    kind = node.tensor(1).kind
    return node.of_kind(ops.element_select(ops.cast(node.x(0), node.x(1).dtype) if node.x(0).dtype is not
                                           node.x(1).dtype else node.x(0), node.x(1), node.x(2)), kind)


@reads("Max", "Min", "Sum", "Mean")
def _several(node: Node) -> Any:
    xs = node.xs()
    if not xs:
        raise node.fail("there are no operands")
    if len(xs) == 1:
        return node.of_kind(ops.alias(xs[0]))
    if node.op in ("Sum", "Mean"):
        return node.of_kind((ops.sum if node.op == "Sum" else ops.mean)(*xs))
    pair = ops.element_max if node.op == "Max" else ops.element_min
    return node.of_kind(reduce(pair, xs))


@reads("Clip")
def _clip(node: Node) -> Any:
    x = node.x()
    if node.opset < 11:
        low, high = node.number("min", -np.inf), node.number("max", np.inf)
        bounds: list[Any] = [_number(v, x) if np.isfinite(v) and abs(v) < 3.4e38 else None for v in (low, high)]
    else:
        bounds = [node.x(i) if node.has(i) else None for i in (1, 2)]
    if None not in bounds:
        return node.of_kind(ops.clip(x, *bounds), node.tensor(0).kind)
    for bound, pair in zip(bounds, (ops.element_max, ops.element_min), strict=True):
        x = x if bound is None else pair(x, bound)
    return node.of_kind(ops.alias(x) if bounds == [None, None] else x, node.tensor(0).kind)


# ---- activations
@reads("LeakyRelu")
def _leaky_relu(node: Node) -> Any:
    return ops.leaky_relu(node.x(), node.number("alpha", 0.01))


@reads("Elu")
def _elu(node: Node) -> Any:
    alpha = node.number("alpha", 1.0)
    return ops.elu(node.x()) if alpha == 1.0 else ops.elu(node.x(), alpha)


@reads("Selu")
def _selu(node: Node) -> Any:
    gamma, alpha = node.number("gamma", 1.0507009873554805), node.number("alpha", 1.6732632423543772)
    return ops.selu(node.x(), gamma, alpha)


@reads("Celu")
def _celu(node: Node) -> Any:
    x, alpha = node.x(), node.number("alpha", 1.0)
    scaled = apply(BY_NAME["ELU"], [ops.element_times(x, _number(1 / alpha, x)).output])
    return ops.element_select(ops.less(x, _number(0, x)), ops.element_times(scaled, _number(alpha, x)), x)


@reads("HardSigmoid")
def _hard_sigmoid(node: Node) -> Any:
    return ops.hard_sigmoid(node.x(), node.number("alpha", 0.2), node.number("beta", 0.5))


@reads("HardSwish")
def _hard_swish(node: Node) -> Any:
    return ops.element_times(node.x(), ops.hard_sigmoid(node.x(), 1 / 6, 0.5))


@reads("ThresholdedRelu")
def _thresholded(node: Node) -> Any:
    x = node.x()
    return ops.element_times(x, ops.greater(x, _number(node.number("alpha", 1.0), x)))


@reads("PRelu")
def _prelu(node: Node) -> Any:
    return ops.param_relu(node.x(1), node.x(0))


@reads("Erf")
def _erf(node: Node) -> Any:
    return _erf_of(node.x())


def _erf_of(x: Any) -> Any:
    """Winitzki's form is too coarse: Abramowitz and Stegun 7.1.26 has an error below 1.5e-7."""
    sign = ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x)))
    a = ops.abs(x)
    t = ops.reciprocal(ops.plus(_number(1, x), ops.element_times(_number(0.3275911, x), a)))
    series: Any = _number(0, x)
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = ops.element_times(ops.plus(series, _number(c, x)), t)
    tail = ops.element_times(series, ops.exp(ops.negate(ops.element_times(a, a))))
    return ops.element_times(sign, ops.minus(_number(1, x), tail))


@reads("Gelu")
def _gelu(node: Node) -> Any:
    x = node.x()
    if node.text("approximate", "none") == "tanh":
        cube = ops.element_times(ops.element_times(x, x), ops.element_times(x, _number(0.044715, x)))
        inner = ops.tanh(ops.element_times(_number(np.sqrt(2 / np.pi), x), ops.plus(x, cube)))
    else:
        inner = _erf_of(ops.element_times(x, _number(np.sqrt(0.5), x)))
    return ops.element_times(ops.element_times(x, _number(0.5, x)), ops.plus(_number(1, x), inner))


@reads("Sign")
def _sign(node: Node) -> Any:
    x = node.x()
    return node.of_kind(ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x))))


@reads("Round")
def _round(node: Node) -> Any:
    """To the nearest even number at halves, which CNTK's round takes up."""
    x = node.x()
    up = ops.floor(ops.plus(x, _number(0.5, x)))
    half = ops.equal(ops.minus(up, x), _number(0.5, x))
    twice = ops.element_times(_number(2, x), ops.floor(ops.element_times(up, _number(0.5, x))))
    return ops.element_select(half, twice, up)


@reads("Mish")
def _mish(node: Node) -> Any:
    return ops.element_times(node.x(), ops.tanh(ops.softplus(node.x())))


@reads("Shrink")
def _shrink(node: Node) -> Any:
    x, bias, bound = node.x(), node.number("bias", 0.0), node.number("lambd", 0.5)
    below = ops.element_times(ops.less(x, _number(-bound, x)), ops.plus(x, _number(bias, x)))
    above = ops.element_times(ops.greater(x, _number(bound, x)), ops.minus(x, _number(bias, x)))
    return ops.plus(below, above)


# ---- integers that are known
_ARITHMETIC: dict[str, Any] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Mod": lambda a, b: a % b,
    "Equal": lambda a, b: np.asarray(a == b, np.bool_), "And": np.logical_and, "Or": np.logical_or,
    "Less": lambda a, b: np.asarray(a < b), "Greater": lambda a, b: np.asarray(a > b),
}


@folds(*_ARITHMETIC)
def _folded(node: Node) -> Any:
    return _ARITHMETIC[node.op](node.array(0), node.array(1))


@folds("Div")
def _folded_div(node: Node) -> Any:
    a, b = node.array(0), node.array(1)
    if object in (a.dtype, b.dtype):
        return a // b
    if not np.all(b):
        raise node.fail("division by zero")
    return np.trunc(a / b).astype(a.dtype)


@folds("Where")
def _folded_where(node: Node) -> Any:
    return np.where(node.array(0), node.array(1), node.array(2))


@folds("Neg", "Abs", "Not")
def _folded_unary(node: Node) -> Any:
    return {"Neg": np.negative, "Abs": np.abs, "Not": np.logical_not}[node.op](node.array(0))
