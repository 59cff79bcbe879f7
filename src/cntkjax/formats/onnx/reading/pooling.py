"""Pooling: operations on [samples, channels, *spatial]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....graph.shape import UNKNOWN_SHAPE
from ....variables import Constant
from .checks import check_size
from .image import batched, borders, image_operand, integers
from .table import OnnxNode, reads
from .values import INT, OnnxTensor, Operand, Outputs, apply_primitive

MOST_ELEMENTS = 128  # of a window whose elements are nodes of the graph


@dataclass(frozen=True)
class _Pooling:
    """How a window moves over an image, with a number for each spatial axis.

    `more` is the padding that only the last window needs, if the sizes are rounded up; `include`: the mean counts the
    padding, but not this one.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    more: Sequence[int]
    include: bool

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of CNTK's operations that all windows have."""
        return {
            "strides": tuple(self.strides), "autoPadding": [False], "lowerPad": tuple(self.low),
            "upperPad": tuple(b + m for b, m in zip(self.high, self.more, strict=True)),
        }


def _pooling(node: OnnxNode, x: Operand) -> _Pooling:
    n = len(x.shape) - 2
    kernel = integers(node, "kernel_shape", [1] * n)
    strides, dilations = (integers(node, k, [1] * n) for k in ("strides", "dilations"))
    low, high = borders(node, x.shape[2:], kernel, strides, dilations)
    more = [0] * n
    if node.integer("ceil_mode", 0):
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        more = [_ceil_padding(*axis) for axis in zip(x.shape[2:], extents, strides, low, high, strict=True)]
    include = bool(node.integer("count_include_pad", 0)) and node.op == "AveragePool"
    return _Pooling(kernel, strides, dilations, low, high, more, include)


def _ceil_padding(size: int, window: int, stride: int, low: int, high: int) -> int:
    """The padding needed by a last window that begins within the operand and ends after it."""
    if size < 0:
        return stride - 1
    left_over = (size + low + high - window) % stride
    if not left_over:
        return 0
    begins = (size + low + high - window) // stride * stride + stride
    return stride - left_over if begins < size + low else 0


@reads("MaxPool", "AveragePool", "LpPool")
def _pool(node: OnnxNode) -> Outputs:
    x = image_operand(node)
    pooling = _pooling(node, x)
    is_special = any(d != 1 for d in pooling.dilations) or (pooling.include and any(pooling.more))
    if is_special or node.op == "LpPool":
        pooled = _by_elements(node, x, pooling)
    else:
        attributes = pooling.attributes | {
            "poolingType": 0 if node.op == "MaxPool" else 1, "poolingWindowShape": tuple(pooling.kernel),
            "ceilOutDim": False, "includePad": pooling.include,
        }
        pooled = batched(lambda v: apply_primitive("Pooling", [v], attributes), x)
    indices = OnnxTensor(INT, make_variable=lambda: _indices(node))
    return [pooled, indices][: max(len(node.proto.output), 1)]


def _indices(node: OnnxNode) -> Operand:
    raise node.error("only a MaxUnpool can use the places of the maxima")


def _by_elements(node: OnnxNode, x: Operand, pooling: _Pooling) -> Operand:
    """The maximum, mean or norm over the elements of the window, each of which is a slice of the padded image."""
    spatial, axes = x.shape[2:], list(range(2, len(x.shape)))
    if any(d < 0 for d in spatial) or prod(pooling.kernel) > MOST_ELEMENTS:
        raise node.error(f"its window {pooling.kernel}, with dilations {pooling.dilations}, has more than "
                         f"{MOST_ELEMENTS} elements, or its image {spatial} is of open size")
    fill = -np.inf if node.op == "MaxPool" else 0.0
    after = [b + m for b, m in zip(pooling.high, pooling.more, strict=True)]
    check_size(prod(sum(axis) for axis in zip(spatial, pooling.low, after, strict=True)), node.where)
    widths = [(0, 0), (0, 0), *zip(pooling.low, after, strict=True)]
    padded = ops.pad(x, widths, ops.CONSTANT_PAD, fill) if any(map(any, widths)) else x
    firsts = [_first_elements(*axis) for axis in zip(
        spatial, pooling.kernel, pooling.strides, pooling.dilations, pooling.low, after, strict=True)]
    elements = []
    for element in product(*map(range, pooling.kernel)):
        begins = [e * d for e, d in zip(element, pooling.dilations, strict=True)]
        ends = [begin + first[-1] + 1 for begin, first in zip(begins, firsts, strict=True)]
        elements.append(ops.slice(padded, axes, begins, ends, list(pooling.strides)))
    if node.op == "MaxPool":
        return reduce(ops.element_max, elements)
    if node.op == "LpPool":
        p = node.integer("p", 2)
        total = reduce(ops.plus, [ops.pow(ops.abs(e), Constant(p, dtype=x.dtype)) for e in elements])
        return ops.pow(total, Constant(1 / p, dtype=x.dtype))
    counts = np.ones(())
    for axis, first in enumerate(firsts):
        places = first[:, None] + np.arange(pooling.kernel[axis]) * pooling.dilations[axis]
        begin, end = pooling.low[axis], pooling.low[axis] + spatial[axis]
        if pooling.include:
            begin, end = 0, end + pooling.high[axis]
        counts = np.multiply.outer(counts, ((places >= begin) & (places < end)).sum(1))
    return ops.element_divide(reduce(ops.plus, elements), Constant(counts.astype(x.dtype), dtype=x.dtype))


def _first_elements(size: int, window: int, stride: int, dilation: int, low: int, high: int) -> np.ndarray:
    """Where the windows begin on the padded axis."""
    return np.arange(0, low + size + high - (window - 1) * dilation, stride)


@reads("GlobalMaxPool", "GlobalAveragePool")
def _global_pool(node: OnnxNode) -> Outputs:
    kind = 0 if node.op == "GlobalMaxPool" else 1
    attributes = {"poolingType": kind, "poolingWindowShape": UNKNOWN_SHAPE}
    return batched(lambda v: apply_primitive("Pooling", [v], attributes), image_operand(node))


@reads("GlobalLpPool")
def _global_norm(node: OnnxNode) -> Outputs:
    x, p = image_operand(node), node.integer("p", 2)
    powers = ops.pow(ops.abs(x), Constant(p, dtype=x.dtype))
    return ops.pow(ops.reduce_sum(powers, list(range(2, len(x.shape)))), Constant(1 / p, dtype=x.dtype))


@reads("MaxUnpool")
def _unpool(node: OnnxNode) -> Outputs:
    """The indices have to be those of a MaxPool: the positions of the maxima are computed again from its operand."""
    pool = node.reader.producers.get(node.proto.input[1])
    if pool is None or pool.op != "MaxPool":
        raise node.error("its indices have to come from a MaxPool")
    source = pool.operand()
    pooling = _pooling(pool, source)
    attributes = pooling.attributes | {"unpoolingWindowShape": tuple(pooling.kernel), "poolingType": 0}
    operands = [ops.to_batch(node.operand()), ops.to_batch(source)]
    return ops.unpack_batch(apply_primitive("Unpooling", operands, attributes))
