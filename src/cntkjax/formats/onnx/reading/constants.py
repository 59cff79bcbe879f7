"""Arrays that are known while a file is read: shapes, values computed from them, and rearranged weights."""

from __future__ import annotations

import importlib
from math import prod

import numpy as np

from .checks import DTYPES, check_size
from .elementwise import cast_type
from .shape import wanted_shape
from .slices import END, ranges_of, split_sizes
from .table import OnnxNode, folds


@folds("Identity", "Cast")
def _folded_cast(node: OnnxNode) -> np.ndarray:
    value = node.array(0)
    if node.op == "Identity" or value.dtype == object:
        return value
    if (to := cast_type(node)) not in DTYPES:
        raise node.error(f"a cast to element type {to} cannot be read")
    return value.astype(DTYPES[to])


@folds("Reshape")
def _folded_reshape(node: OnnxNode) -> np.ndarray:
    value, shape = node.array(0), wanted_shape(node)
    shape = [value.shape[i] if d == 0 and not node.integer("allowzero", 0) else d for i, d in enumerate(shape)]
    return value.reshape(shape)


@folds("Transpose")
def _folded_transpose(node: OnnxNode) -> np.ndarray:
    return np.transpose(node.array(0), node.ints("perm"))


@folds("Squeeze")
def _folded_squeeze(node: OnnxNode) -> np.ndarray:
    axes = node.axes(1)
    return np.squeeze(node.array(0), None if axes is None else tuple(axes))


@folds("Unsqueeze")
def _folded_unsqueeze(node: OnnxNode) -> np.ndarray:
    value, axes = node.array(0), node.axes(1) or []
    if value.ndim + len(axes) > 32:
        raise node.error(f"{len(axes)} new axes")
    return np.expand_dims(value, tuple(axes))


@folds("Concat")
def _folded_concat(node: OnnxNode) -> np.ndarray:
    values = [node.array(i) for i in range(len(node))]
    check_size(sum(v.size for v in values), node.where)
    return np.concatenate(values, node.integer("axis", 1))


@folds("Slice")
def _folded_slice(node: OnnxNode) -> np.ndarray:
    value = node.array(0)
    slices = [slice(None)] * value.ndim
    for axis, begin, end, step in zip(*ranges_of(node, value.ndim), strict=True):
        slices[axis] = slice(begin, end if end > -END else None, step)
    return value[tuple(slices)]


@folds("Split")
def _folded_split(node: OnnxNode) -> list[np.ndarray]:
    value, axis = node.array(0), node.integer("axis", 0)
    sizes = split_sizes(node, value.shape[axis], len(node.proto.output))
    return np.split(value, np.cumsum(sizes)[:-1], axis)


@folds("Gather")
def _folded_gather(node: OnnxNode) -> np.ndarray:
    value, indices = node.array(0), node.array(1)
    if indices.dtype == object:
        raise node.error("its indices depend on the size of a free axis")
    axis = node.axis(node.integer("axis", 0), value.ndim)
    check_size(value.size // max(value.shape[axis], 1) * indices.size, node.where)
    if indices.size and not -value.shape[axis] <= indices.min() <= indices.max() < value.shape[axis]:
        raise node.error(f"an index outside of an axis of {value.shape[axis]}")
    return np.take(value, indices.astype(np.int64), axis)


@folds("ReduceProd")
def _folded_product(node: OnnxNode) -> np.ndarray:
    value = node.array(0)
    keep = bool(node.integer("keepdims", 1))
    axes = node.axes(1)
    return np.prod(value, axis=None if axes is None else tuple(axes), keepdims=keep)


@folds("Expand", needs_sizes=True)
def _folded_expand(node: OnnxNode) -> np.ndarray:
    value, shape = node.array(0), np.broadcast_shapes(node.array(0).shape, tuple(node.integers(1, "the shape")))
    check_size(prod(shape), node.where)
    return np.broadcast_to(value, shape)


# Operations that create no more elements than they get, and are needed for sizes, indices and masks.
@folds(
    "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Clip", "Compress",
    "CumSum", "Exp", "Flatten", "Floor", "GatherElements", "GatherND", "IsInf", "IsNaN", "Log", "Max", "Min", "NonZero",
    "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Round", "ScatterElements", "ScatterND",
    "Sign", "Sqrt", "Sum", "Trilu", "Unique", needs_sizes=True,
)
def _folded_by_onnx(node: OnnxNode) -> list[np.ndarray]:
    """The outputs that ONNX's reference implementation computes."""
    reference = importlib.import_module("onnx.reference")
    values = {node.proto.input[i]: node.array(i) for i in range(len(node)) if node.has(i)}
    return [np.asarray(v) for v in reference.ReferenceEvaluator(node.proto, opsets={"": node.opset}).run(None, values)]


