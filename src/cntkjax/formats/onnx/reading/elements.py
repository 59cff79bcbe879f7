"""Elements by index: gathered from several axes, or replaced where the indices are known.

The elements of a tensor are numbered in their order; an index of several axes becomes the number of an element, so that
a gather from the flat tensor does the rest.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .... import ops
from ....variables import Constant
from .table import OnnxNode, reads
from .values import Operand, Outputs

_MOST = 2**24  # integers that float32 has all of


def _sizes(node: OnnxNode, x: Operand, axes: int) -> tuple[int, ...]:
    """The sizes of the leading axes. Errors: FormatError if they are open, or of too many elements."""
    shape = tuple(x.shape[:axes])
    if any(d < 0 for d in shape) or prod(shape) > _MOST:
        raise node.error(f"elements of a tensor of shape {x.shape} cannot be numbered",
                         "export the model with a fixed size of its inputs, also of the batch")
    return shape


def _flat(x: Operand, rest: tuple[int, ...] = ()) -> Operand:
    return ops.reshape(x, (-1, *rest))


def _indices(node: OnnxNode, size: int | np.ndarray, dtype: type | None) -> Operand:
    """The operand of indices, of axes of these sizes; indices below 0 count from the end, if that is known."""
    size = np.maximum(size, 0)
    known = node.known_array(1)
    if known is not None:
        return Constant(np.where(known < 0, known + size, known).astype(dtype), dtype=dtype)
    index = node.operand(1)
    index = index if index.dtype is dtype else ops.cast(index, dtype)
    is_negative = ops.less(index, Constant(0, dtype=dtype))
    return ops.plus(index, ops.element_times(is_negative, Constant(np.asarray(size, dtype), dtype=dtype)))


@reads("GatherND")
def _gather_nd(node: OnnxNode) -> Outputs:
    """Parts by an index of one or several axes from all samples, or by one index within each of the leading axis."""
    x, indices = node.operand(0), node.tensor(1)
    batch, depth = node.integer("batch_dims", 0), indices.shape[-1]
    if batch not in (0, 1) or (batch and depth != 1) or not 1 <= depth <= len(x.shape):
        raise node.error("only gathers from all samples, or by one index within each of one axis, can be read")
    if batch or depth == 1:
        index = ops.squeeze(_indices(node, x.shape[batch], x.dtype), [len(indices.shape) - 1])
        if not batch:
            return node.of_kind(ops.gather(x, index), node.tensor(0).kind)
        return node.of_kind(ops.unpack_batch(ops.gather(ops.to_batch(x), ops.to_batch(index))), node.tensor(0).kind)
    sizes = np.asarray(_sizes(node, x, depth))
    steps = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    terms = ops.element_times(_indices(node, sizes, x.dtype), Constant(steps.astype(x.dtype), dtype=x.dtype))
    number = ops.reduce_sum(terms, axis=-1, keepdims=False)
    return node.of_kind(ops.gather(_flat(x, tuple(x.shape[depth:])), number), node.tensor(0).kind)


@reads("GatherElements")
def _gather_elements(node: OnnxNode) -> Outputs:
    """For each index, the element at its place, but for one axis, along which the index counts."""
    x, shape = node.operand(0), node.tensor(1).shape
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    sizes = _sizes(node, x, len(x.shape))
    if any(d < 0 for d in shape):
        raise node.error(f"indices of shape {shape}", "export the model with a fixed size of its inputs")
    step = prod(sizes[axis + 1 :])
    places = np.arange(prod(sizes)).reshape(sizes)[tuple(slice(n) for n in shape)]
    others = np.take(places, [0], axis).astype(x.dtype)
    number = ops.plus(
        ops.element_times(_indices(node, sizes[axis], x.dtype), Constant(step, dtype=x.dtype)),
        Constant(others, dtype=x.dtype),
    )
    return node.of_kind(ops.gather(_flat(x), number), node.tensor(0).kind)


@reads("ScatterND", "ScatterElements", "Scatter")
def _scatter(node: OnnxNode) -> Outputs:
    """With known indices: each element is one of the data, or one of the updates, which follow them."""
    x, updates = node.operand(0), node.operand(2)
    if node.string("reduction", "none") != "none":
        raise node.error(f"the reduction {node.string('reduction', '')!r} cannot be read")
    indices = node.array(1, "the indices").astype(np.int64)
    sizes, count = _sizes(node, x, len(x.shape)), prod(_sizes(node, updates, len(updates.shape)))
    source = np.arange(prod(sizes)).reshape(sizes)
    numbers = source.size + np.arange(count).reshape(updates.shape)
    if node.op == "ScatterND":
        source[tuple(np.moveaxis(indices, -1, 0))] = numbers
    else:
        axis = node.axis(node.integer("axis", 0), len(sizes))
        part = tuple(slice(None if a == axis else n) for a, n in enumerate(indices.shape))
        np.put_along_axis(source[part], indices, numbers, axis)
    elements = ops.splice(_flat(x), _flat(updates), axis=0)
    return node.of_kind(ops.gather(elements, Constant(source.astype(x.dtype), dtype=x.dtype)), node.tensor(0).kind)
