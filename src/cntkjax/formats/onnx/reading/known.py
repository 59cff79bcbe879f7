"""Arrays that are known while a file is read: shapes and what is computed from them, and weights rearranged."""


from __future__ import annotations

from typing import Any

import numpy as np

from .checks import limited
from .parts import END, ranges_of, split_sizes
from .table import Node, folds


@folds("Identity", "Cast")
def _folded_cast(node: Node) -> Any:
    value = node.array(0)
    if node.op == "Identity" or value.dtype == object:
        return value
    to = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
    if node.whole("to", 0) not in to:
        raise node.fail(f"a cast to element type {node.whole('to', 0)} cannot be read")
    return value.astype(to[node.whole("to", 0)])


@folds("Reshape")
def _folded_reshape(node: Node) -> Any:
    value, shape = node.array(0), node.integers(1)
    shape = [value.shape[i] if d == 0 and not node.whole("allowzero", 0) else d for i, d in enumerate(shape)]
    return value.reshape(shape)


@folds("Transpose")
def _folded_transpose(node: Node) -> Any:
    return np.transpose(node.array(0), node.ints("perm"))


@folds("Squeeze")
def _folded_squeeze(node: Node) -> Any:
    axes = node.axes(1)
    return np.squeeze(node.array(0), None if axes is None else tuple(axes))


@folds("Unsqueeze")
def _folded_unsqueeze(node: Node) -> Any:
    value, axes = node.array(0), node.axes(1) or []
    if value.ndim + len(axes) > 32:
        raise node.fail(f"{len(axes)} new axes")
    return np.expand_dims(value, tuple(axes))


@folds("Concat")
def _folded_concat(node: Node) -> Any:
    values = [node.array(i) for i in range(len(node))]
    limited(sum(v.size for v in values), node.where)
    return np.concatenate(values, node.whole("axis", 1))


@folds("Slice")
def _folded_slice(node: Node) -> Any:
    value = node.array(0)
    cut: list[Any] = [slice(None)] * value.ndim
    for axis, begin, end, step in zip(*ranges_of(node, value.ndim), strict=True):
        cut[axis] = slice(begin, end if end > -END else None, step)
    return value[tuple(cut)]


@folds("Split")
def _folded_split(node: Node) -> Any:
    value, axis = node.array(0), node.whole("axis", 0)
    sizes = split_sizes(node, value.shape[axis], len(node.proto.output))
    return np.split(value, np.cumsum(sizes)[:-1], axis)


@folds("Gather")
def _folded_gather(node: Node) -> Any:
    value, indices = node.array(0), node.array(1)
    if indices.dtype == object:
        raise node.fail("it gathers by the size of a free axis")
    axis = node.axis(node.whole("axis", 0), value.ndim)
    limited(value.size // max(value.shape[axis], 1) * indices.size, node.where)
    if indices.size and not -value.shape[axis] <= indices.min() <= indices.max() < value.shape[axis]:
        raise node.fail(f"an index outside of an axis of {value.shape[axis]}")
    return np.take(value, indices.astype(np.int64), axis)


@folds("ReduceProd")
def _folded_product(node: Node) -> Any:
    value = node.array(0)
    keep = bool(node.whole("keepdims", 1))
    axes = node.axes(1)
    return np.prod(value, axis=None if axes is None else tuple(axes), keepdims=keep)


