"""Element-wise operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from .... import ops
from ....ops.functions import Function
from ....variables import Constant
from .._onnx import onnx
from ..one_to_one import BINARY, COMPARISONS, LOGIC, UNARY
from .table import OnnxNode, folds, reads
from .values import BOOL, FLOAT, INT, Operand, Outputs, apply_primitive

_PRIMITIVES = {onnx_name: primitive for primitive, onnx_name in (UNARY | BINARY | COMPARISONS).items()}
_BLOCKS: dict[str, Callable[..., Function]] = {"Ceil": ops.ceil, "Softplus": ops.softplus, "Softsign": ops.softsign}


@reads(*UNARY.values())
def _unary(node: OnnxNode) -> Outputs:
    return node.of_kind(apply_primitive(_PRIMITIVES[node.op], [node.operand()]))


@reads(*_BLOCKS)
def _block(node: OnnxNode) -> Outputs:
    return node.of_kind(_BLOCKS[node.op](node.operand()))


@reads("Cast", "CastLike")
@reads("Identity", same_elements=True)
def _cast(node: OnnxNode) -> Outputs:
    """Integers are represented by floats: casts to integers truncate, and casts to booleans give 0 and 1."""
    source = node.tensor(0)
    if node.op == "Identity":
        return node.of_kind(ops.alias(source.variable))
    if node.op == "CastLike":
        kind = node.tensor(1).kind
        dtype = node.operand(1).dtype if kind == FLOAT else None
    else:
        to = cast_type(node)
        kind = FLOAT if to in (1, 10, 11) else BOOL if to == 9 else INT if to in (2, 3, 4, 5, 6, 7, 12, 13) else ""
        if not kind:
            raise node.error(f"a cast to element type {to} cannot be read")
        dtype = {1: np.float32, 10: np.float16, 11: np.float64}.get(to)
    x = source.variable
    if kind == FLOAT:
        return node.of_kind(ops.cast(x, dtype) if x.dtype is not dtype else ops.alias(x), kind)
    converted: Operand
    if kind == BOOL:
        converted = ops.alias(x) if source.kind == BOOL else ops.not_equal(x, _number(0, x))
    else:
        converted = ops.alias(x) if source.kind != FLOAT else _truncated(x)
    return node.of_kind(converted, kind)


def cast_type(node: OnnxNode) -> int:
    """The type of elements that a Cast creates, which before opset 6 is a name. Errors: FormatError for others."""
    if node.opset >= 6:
        return node.integer("to", 1)
    name = node.string("to", "FLOAT").upper()
    number = dict(onnx().TensorProto.DataType.items()).get(name)
    if number is None:
        raise node.error(f"a cast to {name!r}, which is no type of elements")
    return int(number)


def _number(value: float, like: Operand) -> Operand:
    return Constant(float(value), dtype=like.dtype)


def _truncated(x: Operand) -> Operand:
    sign = ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x)))
    return ops.element_times(sign, ops.floor(ops.abs(x)))


@reads(*BINARY.values())
def _binary(node: OnnxNode) -> Outputs:
    return node.of_kind(apply_primitive(_PRIMITIVES[node.op], _of_one_type(node)))


def _of_one_type(node: OnnxNode) -> list[Operand]:
    """Both operands, the second cast to the type of the first; they may differ for exponents and the like."""
    a, b = node.operand(0), _second(node)
    return [a, b if a.dtype is b.dtype else ops.cast(b, a.dtype)]


def _second(node: OnnxNode) -> Operand:
    """The second operand, in a shape that broadcasts to that of the first."""
    b = node.operand(1)
    ones = _missing_axes(node, len(node.operand().shape), len(b.shape))
    return ops.reshape(b, (*b.shape, *[1] * ones)) if ones else b


def _missing_axes(node: OnnxNode, rank: int, rank_of_second: int) -> int:
    """How many axes of size 1 the second operand lacks at its end, to broadcast as NumPy does.

    Before opset 7 an attribute may say at which axis of the first one its own axes begin; the slopes of PRelu belong
    to channels.
    """
    axis = 1 if node.op == "PRelu" and rank > 1 else node.attribute("axis", None)
    if node.opset >= 7 or axis is None or rank_of_second == 0:
        return 0
    ones = rank - node.axis(node.integer("axis", 1), rank) - rank_of_second
    if ones < 0:
        raise node.error(f"{rank_of_second} axes do not begin at axis {axis} of {rank}")
    return ones


@reads("Div")
def _div(node: OnnxNode) -> Outputs:
    a, b = _of_one_type(node)
    quotient = ops.element_divide(a, b)
    return node.of_kind(_truncated(quotient) if node.kind == INT else quotient)


@reads("Mod")
def _mod(node: OnnxNode) -> Outputs:
    a, b = _of_one_type(node)
    quotient = ops.element_divide(a, b)
    truncated = _truncated(quotient) if node.integer("fmod", 0) else ops.floor(quotient)
    return node.of_kind(ops.minus(a, ops.element_times(b, truncated)))


@reads(*COMPARISONS.values())
def _compare(node: OnnxNode) -> Outputs:
    return node.of_kind(apply_primitive(_PRIMITIVES[node.op], _of_one_type(node)), BOOL)


@reads(*LOGIC)
def _logic(node: OnnxNode) -> Outputs:
    operands = node.operands() if node.op == "Not" else [node.operand(), _second(node)]
    return node.of_kind(getattr(ops, f"element_{node.op.lower()}")(*operands), BOOL)


@reads("Where")
def _where(node: OnnxNode) -> Outputs:
    kind = node.tensor(1).kind
    condition, x, y = (node.operand(i) for i in range(3))
    if condition.dtype is not x.dtype:
        condition = ops.cast(condition, x.dtype)
    return node.of_kind(ops.element_select(condition, x, y), kind)


@reads("Max", "Min", "Sum", "Mean")
def _variadic(node: OnnxNode) -> Outputs:
    xs = node.operands()
    if not xs:
        raise node.error("there are no operands")
    if len(xs) == 1:
        return node.of_kind(ops.alias(xs[0]))
    if node.op in ("Sum", "Mean"):
        return node.of_kind((ops.sum if node.op == "Sum" else ops.mean)(*xs))
    pair = ops.element_max if node.op == "Max" else ops.element_min
    return node.of_kind(reduce(pair, xs))


@reads("Clip")
def _clip(node: OnnxNode) -> Outputs:
    x = node.operand()
    low, high = _bounds(node, x)
    if low is not None and high is not None and not _is_empty(node):
        return node.of_kind(ops.clip(x, low, high), node.tensor(0).kind)
    clipped = x if low is None else ops.element_max(x, low)
    clipped = clipped if high is None else ops.element_min(clipped, high)
    return node.of_kind(ops.alias(x) if clipped is x else clipped, node.tensor(0).kind)


def _is_empty(node: OnnxNode) -> bool:
    """True if the smallest value is known to be above the largest, to which all elements are then set."""
    limits = [node.known_array(i) if node.has(i) else None for i in (1, 2)]
    return limits[0] is not None and limits[1] is not None and bool(limits[0] > limits[1])


def _bounds(node: OnnxNode, x: Operand) -> list[Operand | None]:
    """The smallest and the largest value of a Clip; None where it has no bound."""
    if node.opset >= 11:
        return [node.operand(i) if node.has(i) else None for i in (1, 2)]
    limits = node.number("min", -np.inf), node.number("max", np.inf)
    return [_number(v, x) if np.isfinite(v) and abs(v) < 3.4e38 else None for v in limits]


# ---- activations
@reads("Swish")
def _swish(node: OnnxNode) -> Outputs:
    x, alpha = node.operand(), node.number("alpha", 1.0)
    return ops.element_times(x, ops.sigmoid(x if alpha == 1 else ops.element_times(_number(alpha, x), x)))


@reads("LeakyRelu")
def _leaky_relu(node: OnnxNode) -> Outputs:
    return ops.leaky_relu(node.operand(), node.number("alpha", 0.01))


@reads("Elu")
def _elu(node: OnnxNode) -> Outputs:
    alpha = node.number("alpha", 1.0)
    return ops.elu(node.operand()) if alpha == 1.0 else ops.elu(node.operand(), alpha)


@reads("Selu")
def _selu(node: OnnxNode) -> Outputs:
    gamma, alpha = node.number("gamma", 1.0507009873554805), node.number("alpha", 1.6732632423543772)
    return ops.selu(node.operand(), gamma, alpha)


@reads("Celu")
def _celu(node: OnnxNode) -> Outputs:
    x, alpha = node.operand(), node.number("alpha", 1.0)
    scaled = apply_primitive("ELU", [ops.element_times(x, _number(1 / alpha, x))])
    return ops.element_select(ops.less(x, _number(0, x)), ops.element_times(scaled, _number(alpha, x)), x)


@reads("HardSigmoid")
def _hard_sigmoid(node: OnnxNode) -> Outputs:
    return ops.hard_sigmoid(node.operand(), node.number("alpha", 0.2), node.number("beta", 0.5))


@reads("HardSwish")
def _hard_swish(node: OnnxNode) -> Outputs:
    return ops.element_times(node.operand(), ops.hard_sigmoid(node.operand(), 1 / 6, 0.5))


@reads("ThresholdedRelu")
def _thresholded(node: OnnxNode) -> Outputs:
    x = node.operand()
    return ops.element_times(x, ops.greater(x, _number(node.number("alpha", 1.0), x)))


@reads("Affine", "ParametricSoftplus", "ScaledTanh")
def _with_alpha_and_beta(node: OnnxNode) -> Outputs:
    """Experimental operations of the first versions, which converters from Core ML wrote."""
    x = node.operand()
    alpha = _number(node.number("alpha", 1.0), x)
    if node.op == "Affine":
        return ops.plus(ops.element_times(x, alpha), _number(node.number("beta", 0.0), x))
    function = ops.tanh if node.op == "ScaledTanh" else ops.softplus
    return ops.element_times(function(ops.element_times(x, _number(node.number("beta", 1.0), x))), alpha)


@reads("PRelu")
def _prelu(node: OnnxNode) -> Outputs:
    return ops.param_relu(_second(node), node.operand(0))


@reads("Erf")
def _erf(node: OnnxNode) -> Outputs:
    return _erf_of(node.operand())


def _erf_of(x: Operand) -> Operand:
    """Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7; Winitzki's approximation is too coarse."""
    sign = ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x)))
    a = ops.abs(x)
    t = ops.reciprocal(ops.plus(_number(1, x), ops.element_times(_number(0.3275911, x), a)))
    series: Operand = _number(0, x)
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = ops.element_times(ops.plus(series, _number(c, x)), t)
    tail = ops.element_times(series, ops.exp(ops.negate(ops.element_times(a, a))))
    return ops.element_times(sign, ops.minus(_number(1, x), tail))


@reads("Gelu")
def _gelu(node: OnnxNode) -> Outputs:
    x = node.operand()
    inner: Operand
    if node.string("approximate", "none") == "tanh":
        cube = ops.element_times(ops.element_times(x, x), ops.element_times(x, _number(0.044715, x)))
        inner = ops.tanh(ops.element_times(_number(np.sqrt(2 / np.pi), x), ops.plus(x, cube)))
    else:
        inner = _erf_of(ops.element_times(x, _number(np.sqrt(0.5), x)))
    return ops.element_times(ops.element_times(x, _number(0.5, x)), ops.plus(_number(1, x), inner))


@reads("Sign")
def _sign(node: OnnxNode) -> Outputs:
    x = node.operand()
    return node.of_kind(ops.minus(ops.greater(x, _number(0, x)), ops.less(x, _number(0, x))))


@reads("IsNaN")
def _is_nan(node: OnnxNode) -> Outputs:
    return node.of_kind(ops.not_equal(node.operand(), node.operand()), BOOL)


@reads("IsInf")
def _is_inf(node: OnnxNode) -> Outputs:
    x, signs = node.operand(), [node.integer(name, 1) for name in ("detect_negative", "detect_positive")]
    if all(signs):
        return node.of_kind(ops.equal(ops.abs(x), _number(np.inf, x)), BOOL)
    if not any(signs):
        return node.of_kind(ops.zeros_like(x), BOOL)
    return node.of_kind(ops.equal(x, _number(-np.inf if signs[0] else np.inf, x)), BOOL)


@reads("Acosh")
def _acosh(node: OnnxNode) -> Outputs:
    x, one = node.operand(), _number(1, node.operand())
    root = ops.element_times(ops.sqrt(ops.minus(x, one)), ops.sqrt(ops.plus(x, one)))
    return ops.log(ops.plus(x, root))


@reads("Round")
def _round(node: OnnxNode) -> Outputs:
    return rounded(node.operand())


def rounded(x: Operand) -> Operand:
    """The nearest integers; halves are rounded to even, which CNTK's round rounds up. Every step is exact."""
    below = ops.floor(x)
    rest = ops.minus(x, below)
    half = _number(0.5, x)
    even = ops.element_times(_number(2, x), ops.floor(ops.element_times(ops.plus(below, _number(1, x)), half)))
    return ops.element_select(ops.equal(rest, half), even, ops.plus(below, ops.greater(rest, half)))


@reads("Mish")
def _mish(node: OnnxNode) -> Outputs:
    return ops.element_times(node.operand(), ops.tanh(ops.softplus(node.operand())))


@reads("Shrink")
def _shrink(node: OnnxNode) -> Outputs:
    x, bias, bound = node.operand(), node.number("bias", 0.0), node.number("lambd", 0.5)
    below = ops.element_times(ops.less(x, _number(-bound, x)), ops.plus(x, _number(bias, x)))
    above = ops.element_times(ops.greater(x, _number(bound, x)), ops.minus(x, _number(bias, x)))
    return ops.plus(below, above)


# ---- known integers
_ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Mod": lambda a, b: a % b,
    "Equal": lambda a, b: np.asarray(a == b, np.bool_), "And": np.logical_and, "Or": np.logical_or,
    "Less": lambda a, b: np.asarray(a < b), "Greater": lambda a, b: np.asarray(a > b), "Xor": np.logical_xor,
    "LessOrEqual": lambda a, b: np.asarray(a <= b), "GreaterOrEqual": lambda a, b: np.asarray(a >= b),
}


@folds(*_ARITHMETIC)
def _folded(node: OnnxNode) -> np.ndarray:
    return _ARITHMETIC[node.op](node.array(0), _second_array(node))


def _second_array(node: OnnxNode) -> np.ndarray:
    b = node.array(1)
    return b.reshape(b.shape + (1,) * _missing_axes(node, node.array(0).ndim, b.ndim))


@folds("Div")
def _folded_div(node: OnnxNode) -> np.ndarray:
    a, b = node.array(0), _second_array(node)
    if object in (a.dtype, b.dtype):
        return a // b
    if not np.all(b):
        raise node.error("division by zero")
    return np.trunc(a / b).astype(a.dtype)


@folds("Where")
def _folded_where(node: OnnxNode) -> np.ndarray:
    return np.where(node.array(0), node.array(1), node.array(2))


@folds("Neg", "Abs", "Not")
def _folded_unary(node: OnnxNode) -> np.ndarray:
    return {"Neg": np.negative, "Abs": np.abs, "Not": np.logical_not}[node.op](node.array(0))
