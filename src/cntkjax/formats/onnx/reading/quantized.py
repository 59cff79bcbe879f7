"""Quantized operations. Quantized integers are held as float32, exactly: they are smaller than 2^24.

A quantized value q stands for (q - zero point) * scale. Sums of products are computed from q - zero point, scaled, and
rounded once, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import ops
from ....variables import Constant
from .elementwise import rounded
from .image import biased, convolution, for_each_channel
from .product import matrix_product
from .table import OnnxNode, reads
from .values import FLOAT, INT, OnnxTensor, Operand, Outputs, output_of

_TYPES: dict[int, type] = {2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16}  # by onnx.TensorProto.DataType


def _number(value: float, like: Operand) -> Operand:
    return Constant(float(value), dtype=like.dtype)


def _as(x: Operand, dtype: type | None) -> Operand:
    return x if x.dtype is dtype else ops.cast(x, dtype)


# ---- between numbers and quantized integers
@reads("QuantizeLinear")
def _quantize_linear(node: OnnxNode) -> Outputs:
    x, rank = node.operand(0), len(node.tensor(0).shape)
    if node.tensor(1).kind != FLOAT:
        raise node.error("its scale has to be of a floating type")
    scale = _along(node, node.operand(1), rank)
    zero = _along(node, node.operand(2), rank) if node.has(2) else None
    quotient = ops.element_divide(_as(x, scale.dtype), scale)
    return _saturated(_as(rounded(quotient), np.float32), zero, _quantized_type(node, 2))


def _along(node: OnnxNode, value: Operand, rank: int) -> Operand:
    """A scale or zero point, a number or a vector along `axis`, in a shape that broadcasts to an operand of a rank."""
    if node.integer("block_size", 0):
        raise node.error("quantization in blocks (the attribute block_size) cannot be read")
    if value.shape in ((), (1,)):
        return ops.reshape(value, ()) if value.shape else value
    if len(value.shape) != 1:
        raise node.error(f"a scale or zero point of shape {value.shape}; it has to be a number or a vector")
    axis = node.axis(node.integer("axis", 1), rank)
    return ops.reshape(value, (value.shape[0],) + (1,) * (rank - axis - 1))


def _quantized_type(node: OnnxNode, zero_point: int) -> type:
    """The type of the output: that of the zero point, which has to be known; without one, uint8 or `output_dtype`."""
    if not node.has(zero_point):
        number = node.integer("output_dtype", 0) or 2
        if number not in _TYPES:
            raise node.error(f"quantization to element type {number} cannot be read")
        return _TYPES[number]
    dtype = node.array(zero_point, "the zero point, whose type is that of the output").dtype.type
    if dtype not in _TYPES.values():
        raise node.error(f"quantization to {np.dtype(dtype).name} cannot be read")
    return dtype


def _saturated(x: Operand, zero: Operand | None, dtype: type) -> OnnxTensor:
    """x plus the zero point, within the range of a type."""
    limits = np.iinfo(dtype)
    shifted = x if zero is None else ops.plus(x, zero)
    return OnnxTensor(INT, output_of(ops.clip(shifted, _number(limits.min, x), _number(limits.max, x))))


@reads("DequantizeLinear")
def _dequantize_linear(node: OnnxNode) -> Outputs:
    if all(node.tensor(i).is_known for i in range(len(node)) if node.has(i)):
        return _dequantized_array(node)
    rank = len(node.tensor(0).shape)
    scale = _along(node, node.operand(1), rank)
    x = node.operand(0)
    centered = ops.minus(x, _along(node, node.operand(2), rank)) if node.has(2) else x
    return ops.element_times(_as(centered, scale.dtype), scale)


def _dequantized_array(node: OnnxNode) -> np.ndarray:
    """Quantized weights, also int32, exactly."""
    x, scale = node.array(0), node.array(1)
    zero = node.array(2) if node.has(2) else np.zeros((), np.int64)
    if node.integer("block_size", 0) or max(scale.ndim, zero.ndim) > 1:
        raise node.error("quantization in blocks (the attribute block_size) cannot be read")
    if max(scale.size, zero.size) > 1:
        axis = node.axis(node.integer("axis", 1), x.ndim)
        shape = (-1,) + (1,) * (x.ndim - axis - 1)
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    centered = x.astype(np.int64) - zero.astype(np.int64)
    return np.asarray(centered.astype(scale.dtype) * scale)


@reads("DynamicQuantizeLinear")
def _dynamic(node: OnnxNode) -> Outputs:
    """The scale and the zero point are those of the data, so that 0 is exact."""
    x = node.operand()
    axes = list(range(len(x.shape)))
    zero = _number(0, x)
    low = ops.element_min(ops.reduce_min(x, axes, keepdims=False), zero)
    high = ops.element_max(ops.reduce_max(x, axes, keepdims=False), zero)
    width = ops.element_divide(ops.minus(high, low), _number(255, x))
    scale = ops.element_select(ops.equal(width, zero), _number(1, x), width)
    zero_point = rounded(ops.clip(ops.element_divide(ops.negate(low), scale), zero, _number(255, x)))
    quantized = _saturated(rounded(ops.element_divide(x, scale)), zero_point, np.uint8)
    return [quantized, scale, OnnxTensor(INT, output_of(zero_point))]


# ---- products of integers
def _centered(node: OnnxNode, i: int, zero_point: int, place: Callable[[Operand, Operand], Operand]) -> Operand:
    """An operand minus its zero point; `place` reshapes a vector of zero points to broadcast to the operand."""
    x = node.operand(i)
    if not node.has(zero_point):
        return x
    known = node.known_array(zero_point)
    if known is not None and not known.any():
        return x
    return ops.minus(x, _placed(node.operand(zero_point), x, place))


def _placed(value: Operand, x: Operand, place: Callable[[Operand, Operand], Operand]) -> Operand:
    if len(value.shape) == 1:
        return place(value, x) if value.shape[0] != 1 else ops.reshape(value, ())
    return value


def _by_row(values: Operand, x: Operand) -> Operand:
    return ops.reshape(values, (values.shape[0], 1))


def _by_column(values: Operand, x: Operand) -> Operand:
    return values


def _by_kernel(values: Operand, x: Operand) -> Operand:
    return ops.reshape(values, (values.shape[0],) + (1,) * (len(x.shape) - 1))


@reads("MatMulInteger")
def _matmul_integer(node: OnnxNode) -> Outputs:
    product = matrix_product(node, _centered(node, 0, 2, _by_row), _centered(node, 1, 3, _by_column))
    return OnnxTensor(INT, output_of(product))


@reads("ConvInteger")
def _conv_integer(node: OnnxNode) -> Outputs:
    x, kernel = _centered(node, 0, 2, _by_row), _centered(node, 1, 3, _by_kernel)
    return OnnxTensor(INT, output_of(convolution(node, x, kernel)))


def _requantized(node: OnnxNode, sums: Operand, factor: Operand, scale: int) -> OnnxTensor:
    """Sums of products, times the scales of the operands, in the scale and zero point of the output."""
    ratio = ops.element_divide(factor, _placed(node.operand(scale), sums, _by_column))
    return _shifted(node, ops.element_times(sums, ratio), scale + 1)


def _shifted(node: OnnxNode, x: Operand, zero_point: int) -> OnnxTensor:
    """x, in units of the scale of the output, as a quantized output with that zero point."""
    zero = _placed(node.operand(zero_point), x, _by_column) if node.has(zero_point) else None
    return _saturated(rounded(x), zero, _quantized_type(node, zero_point))


@reads("QLinearMatMul")
def _qlinear_matmul(node: OnnxNode) -> Outputs:
    a, b = _centered(node, 0, 2, _by_row), _centered(node, 3, 5, _by_column)
    factor = ops.element_times(_placed(node.operand(1), a, _by_row), _placed(node.operand(4), b, _by_column))
    return _requantized(node, matrix_product(node, a, b), factor, 6)


@reads("QLinearConv")
def _qlinear_conv(node: OnnxNode) -> Outputs:
    x, kernel = _centered(node, 0, 2, _by_row), _centered(node, 3, 5, _by_kernel)
    sums = biased(node, convolution(node, x, kernel), 8)
    factor = ops.element_times(_placed(node.operand(1), x, _by_row), _placed(node.operand(4), sums, for_each_channel))
    return _requantized(node, sums, factor, 6)


@reads("QGemm")
def _qgemm(node: OnnxNode) -> Outputs:
    """ONNX Runtime's: alpha * A' B' + C, where C is in the scale of the product; a number without the last operands."""
    a, b = _centered(node, 0, 2, _by_row), _centered(node, 3, 5, _by_row if node.integer("transB", 0) else _by_column)
    if node.integer("transA", 0):
        a = ops.transpose(a, (1, 0))
    sums = ops.times_transpose(a, b) if node.integer("transB", 0) else ops.times(a, b)
    if node.has(6):
        sums = ops.plus(sums, node.operand(6))
    factor = ops.element_times(_placed(node.operand(1), a, _by_row), _placed(node.operand(4), b, _by_column))
    factor = ops.element_times(factor, _number(node.number("alpha", 1.0), factor))
    return _requantized(node, sums, factor, 7) if node.has(7) else ops.element_times(sums, factor)


# ---- ONNX Runtime's other operations on quantized values: those on numbers, quantized again
def _numbers(node: OnnxNode, i: int) -> Operand:
    """The operand i as numbers; its scale and zero point are the next two operands."""
    return ops.element_times(_centered(node, i, i + 2, _by_row), _placed(node.operand(i + 1), node.operand(i), _by_row))


def _quantized(node: OnnxNode, x: Operand, scale: int) -> OnnxTensor:
    return _shifted(node, ops.element_divide(x, _placed(node.operand(scale), x, _by_column)), scale + 1)


@reads("QLinearAdd", "QLinearMul")
def _qlinear_binary(node: OnnxNode) -> Outputs:
    operation: Any = ops.plus if node.op == "QLinearAdd" else ops.element_times
    return _quantized(node, operation(_numbers(node, 0), _numbers(node, 3)), 6)


@reads("QLinearSigmoid", "QLinearLeakyRelu")
def _qlinear_unary(node: OnnxNode) -> Outputs:
    x = _numbers(node, 0)
    y = ops.sigmoid(x) if node.op == "QLinearSigmoid" else ops.leaky_relu(x, node.number("alpha", 0.01))
    return _quantized(node, y, 3)


@reads("QLinearGlobalAveragePool")
def _qlinear_mean(node: OnnxNode) -> Outputs:
    x = _numbers(node, 0)
    if node.integer("channels_last", 0):
        raise node.error("channels after the spatial axes cannot be read")
    return _quantized(node, ops.reduce_mean(x, list(range(2, len(x.shape)))), 3)
