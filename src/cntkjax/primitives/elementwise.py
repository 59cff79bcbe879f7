"""Element-wise operations on one, two or three operands, broadcasting like NumPy.

Source: CNTK 2.7 for the values outside of the domain of a function: log(0) = -85.1, x/0 = 0, sqrt(-1) = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array
from ..engine.native.library import RELU, SIGMOID, TANH
from ..engine.native.program import Operation, Value, Writer
from ..engine.plan.padding import ANYTHING, FAR, PaddedOperand
from ..engine.plan.parts import resolve
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.shape import UNKNOWN_SHAPE, Shape, broadcast, is_unknown
from ..graph.variable import Edge, Leaf, infer_shape
from .base import Attrs, Primitive, primitive


def broadcast_shape(op: str, inputs: Sequence[Edge]) -> Shape:
    """The common shape of operands; fills inferred dimensions of parameters and constants."""
    shape = broadcast([v.shape for v in inputs])
    if shape is None:
        raise ShapeError(explain(
            f"{op}: the shapes of the operands do not broadcast",
            dict(zip(("left", "right", "third"), inputs, strict=False)),
            "each dimension, counted from the last, has to be equal or 1",
        ))
    fill_inferred(shape, inputs)
    return shape


def fill_inferred(shape: Shape, inputs: Sequence[Edge]) -> None:
    """Give parameters and constants among operands that broadcast to this shape the dimensions that they leave open."""
    for v in inputs:
        if isinstance(v, Leaf) and v.has_inferred:
            trailing = shape[len(shape) - len(v.shape) :]
            infer_shape(v, tuple(s if d < 0 else d for s, d in zip(trailing, v.shape, strict=True)))


class Elementwise(Primitive):
    """An operation whose output has the broadcast shape of its operands."""

    elementwise = True
    infers_partially = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The broadcast shape. An unknown operand, as in a loop, counts as no larger than one with dynamic axes.

        Parameters and constants of unknown shape take that of the other operands once it is known.
        """
        known = [v for v in inputs if not is_unknown(v.shape)]
        if len(known) == len(inputs):
            return broadcast_shape(self.name, inputs)
        leaves = [v for v in inputs if is_unknown(v.shape) and isinstance(v, Leaf)]
        if known and leaves and len(known) + len(leaves) == len(inputs):
            shape = broadcast_shape(self.name, known)
            for leaf in leaves:
                infer_shape(leaf, shape)
            return shape
        larger = [v for v in known if v.dynamic_axes and v.shape and 1 not in v.shape]
        return broadcast_shape(self.name, larger) if larger else UNKNOWN_SHAPE

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Where all numbers in the padding are known, that which simple arithmetic makes of them, as of masks."""
        numbers = [np.float32(v.padding if v.has_steps else v.constant) for v in operands]
        if self.name not in _ARITHMETIC or np.isnan(numbers).any():
            return ANYTHING
        return float(_BY_NUMPY[self.name](*numbers))

    def lower(self, attrs: Attrs, *samples: Array) -> Array:
        """The computation; the operands broadcast like NumPy arrays."""
        raise NotImplementedError(self.name)

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """NumPy's operation, unless the axis of the batch would meet another one."""
        output = node.node_outputs[0]
        rank = len(output.shape)
        fits = all(len(v.shape) == rank if v.dynamic_axes else len(v.shape) <= rank for v in node.node_inputs)
        is_large = output.dynamic_axes and rows * math.prod(output.shape) > _MOST_ELEMENTS
        return (_IN_ONE_PASS if is_large else _BY_NUMPY).get(self.name) if fits else None


    def by_steps(self, node: Node) -> Operation | None:
        """Of operands of one shape, or one of them and constants."""
        shape = node.node_outputs[0].shape
        if any(v.shape != shape for v in node.node_inputs if v.dynamic_axes):
            return None
        write = _BY_STEPS.get(self.name)
        keys = [resolve(v) for v in node.node_inputs]
        return write and Operation(lambda writer, *operands: write(writer, shape, keys, *operands), of_steps=True)


class _Identity(Elementwise):
    """The operand."""

    is_identity = True
    rearranged_operands = slice(None)

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the operand."""
        return operands[0].padding


class _Exponential(Elementwise):
    """Powers of e."""

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """0 if the operand's padding is far below 0."""
        (x,) = operands
        return 0.0 if x.padding is not None and x.padding <= -FAR else ANYTHING


class _Difference(Elementwise):
    """a - b."""

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of a, if it is so far from 0 that b, which has no padding, does not matter."""
        a, b = operands
        is_far = b.padding is None and a.padding is not None and abs(a.padding) >= FAR
        return a.padding if is_far else super().padding_value(attrs, operands)


class _Product(Elementwise):
    """a * b."""

    multiplies = True

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """0 if one factor is 0."""
        return 0.0 if any(v.padding == 0 for v in operands) else super().padding_value(attrs, operands)


class _Selection(Elementwise):
    """a where a flag is not 0, otherwise b."""

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of b, if the flag is 0."""
        flag, _, b = operands
        if flag.padding != 0:
            return ANYTHING
        return b.constant if b.padding is None else b.padding


_LEAST = float(np.exp(float(np.float32(-85.1))))  # CNTK takes no logarithm of a smaller number, in any precision


def _at_least(bound: float, x: Array) -> Array:
    """The larger one of both, and NaN of NaN.

    A selection, since XLA's sums of `maximum` on the CPU, computed by YNNPACK, pass over NaN (jax 0.10).
    """
    least = jnp.asarray(bound, x.dtype)
    return jnp.where(x <= least, least, x)


@jax.custom_jvp
def _relu(x: Array) -> Array:
    return _at_least(0, x)


@_relu.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    y = _relu(x)
    return y, jnp.where(y > 0, dx, jnp.zeros((), dx.dtype))


@jax.custom_jvp
def _safe_log(x: Array) -> Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # half precision has no number so small
    return jnp.log(_at_least(_LEAST, wide)).astype(x.dtype)


@_safe_log.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return _safe_log(x), dx / jnp.maximum(x, jnp.asarray(_LEAST, x.dtype))


@jax.custom_jvp
def _safe_divide(a: Array, b: Array) -> Array:
    # The division comes last: XLA recomputes none in a fusion, so an operation after it is another pass over memory.
    return a / _infinite_for_0(b)


@_safe_divide.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (a, b), (da, db) = primals, tangents
    quotient = _safe_divide(a, b)
    return quotient, (da - quotient * db) / _infinite_for_0(b)


def _infinite_for_0(x: Array) -> Array:
    return jnp.where(x != 0, x, jnp.asarray(jnp.inf, x.dtype))


def _reciprocal(x: Array) -> Array:
    return _safe_divide(jnp.ones((), x.dtype), x)


@jax.custom_vjp
def _sqrt(x: Array) -> Array:
    return jnp.sqrt(_at_least(0, x))


def _sqrt_backward(root: Array, d: Array) -> tuple[Array]:
    # Infinite at 0, as in CNTK, but 0 times infinity is 0 here: padding must not produce NaN.
    return (jnp.where(d == 0, d, d / (2 * root)),)


_sqrt.defvjp(lambda x: (_sqrt(x), _sqrt(x)), _sqrt_backward)


@jax.custom_jvp
def _power(base: Array, exponent: Array) -> Array:
    return jnp.where((base == 0) & (exponent < 0), jnp.zeros((), base.dtype), jnp.power(base, exponent))


@_power.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (base, exponent), (d_base, d_exponent) = primals, tangents
    power, positive = _power(base, exponent), base > 0
    log = jnp.log(jnp.where(positive, base, jnp.ones((), base.dtype)))
    return power, d_base * exponent * _power(base, exponent - 1) + d_exponent * power * log


def _clip(x: Array, low: Array, high: Array) -> Array:
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def _same_type(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: compare(a, b).astype(jnp.result_type(a))


@jax.custom_jvp
def _straight_through(x: Array) -> Array:
    return jnp.where(x > 0, jnp.ones((), x.dtype), -jnp.ones((), x.dtype))


@_straight_through.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return _straight_through(x), jnp.where(jnp.abs(x) <= 1, dx, jnp.zeros((), x.dtype))


# tanh(x) / x - 1 = x² P(x²) for |x| < 0.625 (Cody and Waite, 1980; the coefficients are those of Moshier's Cephes).
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
# exp(2 h) - 1 - 2 h = h² P(h) for |h| < ln(2) / 4
_EXPM1 = (8.914944e-2, 2.6751584e-1, 6.66664e-1, 1.33332784, 2.0)
_SHIFT = 1.5 * 2.0**23  # around this number float32 has a spacing of 1
_MANY = 1 << 15


@jax.custom_jvp
def _tanh(x: Array) -> Array:
    """tanh to within 2.4 units in the last place (float64: 3.1), and without bias.

    XLA's own is off by up to 5 (6), which near ±1 changes much of the gradient 1 - tanh². XLA:CPU splits a kernel among
    threads by its number of operations, even for the few thousand numbers of a recurrent step, where that takes a fifth
    longer: those are computed with `exp`, which counts as one operation.
    """
    wide = x if x.dtype == jnp.float64 else x.astype(jnp.float32)
    many = isinstance(x.size, int) and x.size >= _MANY and x.dtype != jnp.float64  # symbolic in an export
    return (_tanh_by_exponential(wide) if many else _tanh_by_cases(wide)).astype(x.dtype)


def _tanh_by_cases(x: Array) -> Array:
    """A polynomial up to 0.625, 1 - 2 / (exp(2 |x|) + 1) beyond."""
    size, square = jnp.abs(x), x * x
    near = jnp.tanh(x) if x.dtype == jnp.float64 else x + x * square * _polynomial(_TANH, square)
    return jnp.where(size < 0.625, near, jnp.copysign(1 - 2 / (jnp.exp(2 * size) + 1), x))


def _tanh_by_exponential(x: Array) -> Array:
    """(e - 1) / (e + 1) with e = exp(2 |x|), in 22 vector instructions."""
    size = jnp.abs(x)
    size = jnp.where(size > 9.1, jnp.float32(9.1), size)  # there it is 1; NaN stays NaN
    # The nearest integer by bits: rounding and converting takes XLA ten operations.
    power = _bits(size * (2 / math.log(2)) + _SHIFT) - _bits(jnp.float32(_SHIFT))
    half = size - power.astype(jnp.float32) * (math.log(2) / 2)  # its error matters little where power is large
    small = (half + half) + half * half * _polynomial(_EXPM1, half)
    scale = lax.bitcast_convert_type((power << 23) + (127 << 23), jnp.float32)  # 2 ** power
    above = scale * small + (scale - 1)
    return lax.bitcast_convert_type(_bits(above) | (_bits(x) & jnp.int32(-(2**31))), jnp.float32) / (above + 2)


def _polynomial(coefficients: Sequence[float], x: Array) -> Array | float:
    value: Array | float = coefficients[0]
    for c in coefficients[1:]:
        value = value * x + c
    return value


def _bits(x: Array) -> Array:
    return lax.bitcast_convert_type(x, jnp.int32)


@_tanh.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    y = _tanh(x)
    return y, dx * ((1 + y) * (1 - y))  # one factor: the residual that a loop saves


# name, number in the v2 format, computation
_OPERATIONS: list[tuple[str, int, Callable[..., Array]]] = [
    ("Negate", 0, jnp.negative),
    ("Tanh", 2, _tanh),
    ("ReLU", 3, _relu),
    ("Exp", 4, jnp.exp),
    ("Log", 5, _safe_log),
    ("Sqrt", 6, _sqrt),
    ("Floor", 7, jnp.floor),
    ("Abs", 8, lambda x: x * lax.stop_gradient(jnp.sign(x))),  # gradient 0 at 0
    ("Reciprocal", 9, _reciprocal),
    ("Plus", 19, jnp.add),
    ("Minus", 20, jnp.subtract),
    ("ElementTimes", 21, jnp.multiply),
    ("Equal", 22, _same_type(jnp.equal)),
    ("NotEqual", 23, _same_type(jnp.not_equal)),
    ("Less", 24, _same_type(jnp.less)),
    ("LessEqual", 25, _same_type(jnp.less_equal)),
    ("Greater", 26, _same_type(jnp.greater)),
    ("GreaterEqual", 27, _same_type(jnp.greater_equal)),
    # The gradient of Clip is 1 at the bounds, which have none themselves.
    ("Clip", 41, lambda x, *bounds: _clip(x, *map(lax.stop_gradient, bounds))),
    ("Select", 42, lambda flag, a, b: jnp.where(flag != 0, a, b)),
    ("LogPlus", 52, jnp.logaddexp),
    ("Sin", 54, jnp.sin),
    ("Cos", 55, jnp.cos),
    ("NoOp", 62, lambda x: x),
    ("StopGradient", 64, lax.stop_gradient),
    ("ELU", 65, jax.nn.elu),
    ("Pow", 69, _power),
    ("StableSigmoid", 75, jax.nn.sigmoid),
    ("Sinh", 77, jnp.sinh),
    ("Cosh", 78, jnp.cosh),
    ("Asin", 81, jnp.arcsin),
    ("Acos", 82, jnp.arccos),
    ("Atanh", 85, jnp.arctanh),
    ("Asinh", 86, jnp.arcsinh),
    ("StraightThrough", 94, _straight_through),
    ("Tan", 95, jnp.tan),
    ("Atan", 96, jnp.arctan),
]


def _relu_by_numpy(x: AnyArray) -> AnyArray:
    return np.maximum(x, x.dtype.type(0))


def _sigmoid_by_numpy(x: AnyArray) -> AnyArray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


def _compared_by_numpy(compare: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: compare(a, b).astype(a.dtype)


_NEGATIVE = np.array(-1, np.float32)


def _activation(number: int) -> Callable[..., Value]:
    return lambda writer, shape, keys, x: writer.activated(x, number)


def _sum_by_steps(writer: Writer, shape: Shape, keys: Sequence[Edge], a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return writer.combined(a, b, shape, multiplies=False)
    return writer.shifted(a, b, shape) if isinstance(a, Value) else writer.shifted(b, a, shape)


def _product_by_steps(writer: Writer, shape: Shape, keys: Sequence[Edge], a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return writer.combined(a, b, shape, multiplies=True)
    value, key, constant = (a, keys[1], b) if isinstance(a, Value) else (b, keys[0], a)
    return writer.scaled(key, value, constant, shape)


def _difference_by_steps(writer: Writer, shape: Shape, keys: Sequence[Edge], a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        b = writer.scaled(-1, b, _NEGATIVE, shape)
        return writer.combined(a, b, shape, multiplies=False)
    if isinstance(a, Value):
        return writer.shifted(a, -b, shape)
    return writer.shifted(writer.scaled(-1, b, _NEGATIVE, shape), a, shape)


_BY_STEPS: dict[str, Callable[..., Value]] = {
    "ReLU": _activation(RELU), "StableSigmoid": _activation(SIGMOID), "Tanh": _activation(TANH),
    "Plus": _sum_by_steps, "ElementTimes": _product_by_steps, "Minus": _difference_by_steps,
    "StopGradient": lambda writer, shape, keys, x: writer.same(x),
}


def _divide_by_numpy(a: AnyArray, b: AnyArray) -> AnyArray:
    return np.where(b == 0, b.dtype.type(0), a / b)


# NumPy computes these with vector instructions, the others in several passes or element by element.
_IN_ONE_PASS: dict[str, Callable[..., Any]] = {
    "Plus": np.add, "Minus": np.subtract, "ElementTimes": np.multiply, "Negate": np.negative, "Abs": np.abs,
    "Exp": np.exp, "Tanh": np.tanh, "ReLU": _relu_by_numpy, "Floor": np.floor,
    **dict.fromkeys(("NoOp", "StopGradient"), np.copy),
}
_BY_NUMPY: dict[str, Callable[..., Any]] = _IN_ONE_PASS | {
    "StableSigmoid": _sigmoid_by_numpy, "LogPlus": np.logaddexp, "Quotient": _divide_by_numpy,
    "Reciprocal": lambda x: _divide_by_numpy(x.dtype.type(1), x), "ELU": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Select": lambda flag, a, b: np.where(flag != 0, a, b),
    "Clip": lambda x, low, high: np.where(x < low, low, np.where(x > high, high, x)),
    **{name: _compared_by_numpy(compare) for name, compare in {
        "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less, "LessEqual": np.less_equal,
        "Greater": np.greater, "GreaterEqual": np.greater_equal}.items()},
}
_ARITHMETIC = {
    "Plus", "Minus", "ElementTimes", "Negate", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
}
_WITHOUT_GRADIENT = {
    "StopGradient", "Floor", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
}
_MOST_ELEMENTS = 1 << 12  # for more of them XLA takes less time

# Operations with traits beyond those of element-wise ones
_BASES = {"Exp": _Exponential, "Minus": _Difference, "ElementTimes": _Product, "Select": _Selection, "NoOp": _Identity}


def _define(op: str, number: int, compute: Callable[..., Array]) -> Elementwise:
    class Generated(_BASES.get(op, Elementwise)):  # type: ignore[misc]
        def stops_gradient(self, node: Node) -> bool:
            return op in _WITHOUT_GRADIENT

        def lower(self, attrs: Attrs, *samples: Array) -> Array:
            return compute(*samples)

    Generated.__name__ = Generated.__qualname__ = op
    return primitive(op, number)(Generated)


class Quotient(Elementwise):
    """a / b, and 0 where b is 0; replaces CNTK's product with a reciprocal, which takes one more pass."""

    name = "Quotient"

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """0 if the dividend is 0."""
        return 0.0 if operands[0].padding == 0 else ANYTHING

    def lower(self, attrs: Attrs, *samples: Array) -> Array:
        """The quotient."""
        return _safe_divide(*samples)


QUOTIENT = Quotient()
ELEMENTWISE = {op: _define(op, number, compute) for op, number, compute in _OPERATIONS}
