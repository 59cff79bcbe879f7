"""Concatenation, repetition, padding, and tensors created from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .... import ops
from ....graph.shape import FREE
from ....variables import Constant
from .checks import DTYPES, array_of, check_size
from .table import OnnxNode, reads
from .values import Dim, OnnxTensor, Operand, Outputs


@reads("Concat")
def _concat(node: OnnxNode) -> Outputs:
    xs = node.operands()
    if len(xs) < len(node):
        raise node.error("an operand is missing")
    axis = node.axis(node.integer("axis", 1), len(xs[0].shape))
    return node.of_kind(ops.splice(*xs, axis=axis) if len(xs) > 1 else ops.alias(xs[0]))


@reads("Expand", same_elements=True)
def _expand(node: OnnxNode) -> Outputs:
    x, shape = node.operand(), list(node.array(1, "the shape").reshape(-1).tolist())
    return node.of_kind(expanded(node, x, shape), node.tensor(0).kind)


def expanded(node: OnnxNode, x: Operand, shape: Sequence[int | Dim]) -> Operand:
    """x broadcast to a shape by adding zeros, which for open axes are created from the variable with that axis."""
    if len(shape) > 32 or any(not isinstance(d, Dim) and d < 0 for d in shape):
        raise node.error(f"the shape {shape}")
    sizes = [1 if isinstance(d, Dim) else int(d) for d in shape]
    check_size(prod(sizes), node.where)
    dtype = x.dtype
    result = x
    operand_shape = (1,) * (len(sizes) - len(x.shape)) + tuple(x.shape)
    pairs = zip(sizes, operand_shape[-len(sizes) :], strict=False)
    if len(sizes) > len(x.shape) or any(s > 1 and s != o for s, o in pairs):
        result = ops.plus(result, Constant(np.zeros(tuple(sizes), dtype), dtype=dtype))
    for i, size in enumerate(shape):
        if isinstance(size, Dim):
            if size.variable is None:
                raise node.error("it expands to a size that is computed from open sizes")
            if len(operand_shape) == len(shape) and operand_shape[i] == FREE:
                continue  # as large as that already, or else it could not be expanded to it
            result = ops.plus(result, _zeros_along(size, len(shape) - i - 1, dtype))
    return result if result is not x else ops.alias(x)


def _zeros_along(size: Dim, trailing: int, dtype: type | None) -> Operand:
    """Zeros [size, 1, 1, ...] with this number of trailing axes."""
    assert size.variable is not None
    zeros = ops.zeros_like(size.variable)
    others = [i for i in range(len(size.variable.shape)) if i != size.axis]
    vector = ops.reduce_sum(zeros, axis=others, keepdims=False) if others else zeros
    vector = ops.cast(vector, dtype) if vector.dtype is not dtype else vector
    return ops.reshape(vector, (-1,) + (1,) * trailing) if trailing else vector


@reads("Tile")
def _tile(node: OnnxNode) -> Outputs:
    x = node.operand()
    if node.opset < 6:  # along one axis
        repeats = [1] * len(x.shape)
        repeats[node.axis(node.integers(2, "axis")[0], len(x.shape))] = node.integers(1, "tiles")[0]
    else:
        repeats = node.integers(1, "repeats")
    if len(repeats) != len(x.shape) or any(r < 1 for r in repeats):
        raise node.error(f"{repeats} repeats of a tensor of rank {len(x.shape)}")
    check_size(prod(repeats) * prod(d for d in x.shape if d > 0), node.where)
    tiled = x
    for axis, count in enumerate(repeats):
        if count > 1024:
            raise node.error(f"{count} repeats")
        tiled = ops.splice(*[tiled] * count, axis=axis) if count > 1 else tiled
    return node.of_kind(tiled if tiled is not x else ops.alias(x), node.tensor(0).kind)


@reads("ConstantOfShape")
def _constant_of_shape(node: OnnxNode) -> Outputs:
    shape = list(node.array(0, "the shape").reshape(-1).tolist())
    tensor = node.attribute("value")
    value = np.zeros(1, np.float32) if tensor is None else array_of(tensor, node.where, node.reader.folder)
    if value.size != 1 or len(shape) > 32:
        raise node.error("it needs one value")
    if any(isinstance(d, Dim) for d in shape):
        start = node.reader.constant(value.reshape(()))
        return OnnxTensor(start.kind, expanded(node, start.variable, shape), uniform=value.reshape(()))
    if any(d < 0 for d in shape):
        raise node.error(f"the shape {shape}")
    check_size(prod(shape), node.where)
    return np.full(shape, value.reshape(()), value.dtype)


@reads("Range")
def _range(node: OnnxNode) -> Outputs:
    start, stop, step = (node.array(i).reshape(()).item() for i in range(3))
    if any(isinstance(v, Dim) for v in (start, stop, step)) or not step:
        raise node.error("a range of open size cannot be read")
    check_size(max(int((stop - start) / step), 0), node.where)
    return np.arange(start, stop, step).astype(node.array(0).dtype)


@reads("Pad")
def _pad(node: OnnxNode) -> Outputs:
    x, mode = node.operand(), node.string("mode", "constant")
    if node.opset < 11:
        widths, value = node.ints("pads" if node.opset > 1 else "paddings", ()), node.number("value", 0.0)
    else:
        widths = node.integers(1, "pads")
        value = float(node.array(2).reshape(())) if node.has(2) else 0.0
    assert widths is not None
    rank = len(x.shape)
    if node.has(3):
        axes = [node.axis(a, rank) for a in node.integers(3, "axes")]
        all_widths = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            all_widths[axis], all_widths[rank + axis] = widths[i], widths[len(axes) + i]
        widths = all_widths
    if len(widths) != 2 * rank:
        raise node.error(f"{len(widths)} widths for {rank} axes")
    cut = [(i, max(-widths[i], 0), max(-widths[rank + i], 0)) for i in range(rank)]
    for axis, head, foot in cut:
        if head or foot:
            x = ops.slice(x, axis, head, -foot)
    pattern = [(max(widths[i], 0), max(widths[rank + i], 0)) for i in range(rank)]
    check_size(prod(d + sum(p) for d, p in zip(x.shape, pattern, strict=True) if d >= 0), node.where)
    if mode in ("edge", "wrap"):
        return node.of_kind((_edges if mode == "edge" else _wrapped)(node, x, pattern), node.tensor(0).kind)
    modes = {"constant": ops.CONSTANT_PAD, "reflect": ops.REFLECT_PAD}
    if mode not in modes:
        raise node.error(f"the mode {mode!r} cannot be read")
    return node.of_kind(ops.pad(x, pattern, modes[mode], value), node.tensor(0).kind)


def _edges(node: OnnxNode, x: Operand, pattern: list[tuple[int, int]]) -> Operand:
    for axis, (head, foot) in enumerate(pattern):
        parts = [ops.slice(x, axis, 0, 1)] * head + [x] + [ops.slice(x, axis, -1, 0)] * foot
        x = ops.splice(*parts, axis=axis) if len(parts) > 1 else x
    return x


def _wrapped(node: OnnxNode, x: Operand, pattern: list[tuple[int, int]]) -> Operand:
    for axis, (head, foot) in enumerate(pattern):
        if not head and not foot:
            continue
        if not 0 < max(head, foot) <= x.shape[axis]:
            raise node.error(f"axis {axis} of {x.shape} cannot be wrapped by {head} and {foot} elements")
        parts = [ops.slice(x, axis, -head, 0)] * (head > 0) + [x] + [ops.slice(x, axis, 0, foot)] * (foot > 0)
        x = ops.splice(*parts, axis=axis)
    return x


@reads("EyeLike")
def _eye(node: OnnxNode) -> Outputs:
    x, k = node.operand(), node.integer("k", 0)
    dtype = np.dtype(DTYPES.get(node.integer("dtype", 0), x.dtype))
    if not k and dtype == x.dtype:
        return node.of_kind(ops.eye_like(x, sparse_output=False))
    if len(x.shape) != 2 or any(d < 0 for d in x.shape):
        raise node.error("a diagonal of open size can be read only as the main diagonal, of the type of the operand")
    check_size(prod(x.shape), node.where)
    rows, columns = x.shape
    return np.eye(rows, columns, k, dtype=dtype)


@reads("OneHot")
def _one_hot(node: OnnxNode) -> Outputs:
    x, depth = node.operand(0), node.integers(1, "depth")
    low, high = node.array(2, "values").reshape(-1)[:2].tolist()
    check_size(depth[0], node.where)
    axis = node.integer("axis", -1)
    one_hot = ops.one_hot(x, depth[0], False, axis=axis if axis < 0 else node.axis(axis, len(x.shape) + 1))
    if node.tensor(2).kind == "float" and one_hot.dtype is not node.reader.constant(node.array(2)).variable.dtype:
        one_hot = ops.cast(one_hot, node.array(2).dtype.type)
    if (low, high) == (0, 1):
        return node.of_kind(one_hot, node.tensor(2).kind)
    scaled = ops.element_times(one_hot, Constant(high - low, dtype=one_hot.dtype))
    return node.of_kind(ops.plus(scaled, Constant(low, dtype=one_hot.dtype)), node.tensor(2).kind)


@reads("Trilu")
def _trilu(node: OnnxNode) -> Outputs:
    x = node.operand()
    if len(x.shape) < 2 or any(d < 0 for d in x.shape[-2:]):
        raise node.error("triangles of open size cannot be read")
    k = int(node.array(1).reshape(())) if node.has(1) else 0
    check_size(prod(x.shape[-2:]), node.where)
    ones = np.ones(x.shape[-2:], x.dtype)
    mask = np.triu(ones, k) if node.integer("upper", 1) else np.tril(ones, k)
    return node.of_kind(ops.element_select(Constant(mask, dtype=x.dtype), x, Constant(0, dtype=x.dtype)),
                        node.tensor(0).kind)


