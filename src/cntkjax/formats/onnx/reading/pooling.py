"""Pooling: operations on [samples, channels, *spatial]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Literal

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
    places = OnnxTensor(INT, make_variable=lambda: _places(node, x, pooling))
    return [pooled, places][: max(len(node.proto.output), 1)]


def _places(node: OnnxNode, x: Operand, pooling: _Pooling) -> Operand:
    """Where in the flattened operand each maximum is; of equal ones the first."""
    if x.shape[0] < 0:
        raise node.error("the places of the maxima among an unknown number of samples cannot be read")
    elements, windows = _elements(node, x, pooling), _window_places(x, pooling)
    order: Literal["C", "F"] = "F" if node.integer("storage_order", 0) else "C"
    samples, spatial = x.shape[:2], x.shape[2:]
    before = np.arange(prod(samples)).reshape(*samples, *(1 for _ in spatial)) * prod(spatial)

    def flat(at: list[np.ndarray]) -> Operand:
        within = np.ravel_multi_index(np.ix_(*at), spatial, mode="clip", order=order)
        return Constant((before + within).astype(x.dtype), dtype=x.dtype)

    best: Operand = elements[0]
    place: Operand = flat(windows[0])
    for element, at in zip(elements[1:], windows[1:], strict=True):
        is_larger = ops.greater(element, best)
        best, place = ops.element_max(element, best), ops.element_select(is_larger, flat(at), place)
    return place


def _by_elements(node: OnnxNode, x: Operand, pooling: _Pooling) -> Operand:
    """The maximum, mean or norm over the elements of the window."""
    elements = _elements(node, x, pooling)
    if node.op == "MaxPool":
        return reduce(ops.element_max, elements)
    if node.op == "LpPool":
        p = node.integer("p", 2)
        total = reduce(ops.plus, [ops.pow(ops.abs(e), Constant(p, dtype=x.dtype)) for e in elements])
        return ops.pow(total, Constant(1 / p, dtype=x.dtype))
    ends = [size + (high if pooling.include else 0) for size, high in zip(x.shape[2:], pooling.high, strict=True)]
    begins = [-low if pooling.include else 0 for low in pooling.low]
    counts = sum(
        reduce(np.multiply.outer, [(a >= b) & (a < e) for a, b, e in zip(at, begins, ends, strict=True)]).astype(int)
        for at in _window_places(x, pooling)
    )
    return ops.element_divide(reduce(ops.plus, elements), Constant(np.asarray(counts, x.dtype), dtype=x.dtype))


def _elements(node: OnnxNode, x: Operand, pooling: _Pooling) -> list[Operand]:
    """The elements of all windows: a slice of the padded image for each place in the window, row by row."""
    spatial, axes = x.shape[2:], list(range(2, len(x.shape)))
    if any(d < 0 for d in spatial) or prod(pooling.kernel) > MOST_ELEMENTS:
        raise node.error(f"its window {pooling.kernel}, with dilations {pooling.dilations}, has more than "
                         f"{MOST_ELEMENTS} elements, or its image {spatial} is of open size")
    fill = -np.inf if node.op == "MaxPool" else 0.0
    after = [b + m for b, m in zip(pooling.high, pooling.more, strict=True)]
    check_size(prod(sum(axis) for axis in zip(spatial, pooling.low, after, strict=True)), node.where)
    widths = [(0, 0), (0, 0), *zip(pooling.low, after, strict=True)]
    padded = ops.pad(x, widths, ops.CONSTANT_PAD, fill) if any(map(any, widths)) else x
    elements: list[Operand] = []
    for at in _window_places(x, pooling):
        begins, ends = ([int(a[i]) + low for a, low in zip(at, pooling.low, strict=True)] for i in (0, -1))
        elements.append(ops.slice(padded, axes, begins, [end + 1 for end in ends], list(pooling.strides)))
    return elements


def _window_places(x: Operand, pooling: _Pooling) -> list[list[np.ndarray]]:
    """For each place in the window, row by row, where it lies along each axis of the image as the window moves."""
    after = [b + m for b, m in zip(pooling.high, pooling.more, strict=True)]
    firsts = [
        np.arange(-low, size + high - (k - 1) * d, s) for size, k, s, d, low, high in zip(
            x.shape[2:], pooling.kernel, pooling.strides, pooling.dilations, pooling.low, after, strict=True)
    ]
    return [
        [first + e * d for first, e, d in zip(firsts, element, pooling.dilations, strict=True)]
        for element in product(*map(range, pooling.kernel))
    ]


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
