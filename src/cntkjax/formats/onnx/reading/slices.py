"""Parts of tensors: slices, splits, elements by index."""

from __future__ import annotations

import numpy as np

from .... import ops
from .table import OnnxNode, reads
from .values import Outputs

END = 2**31 - 1


@reads("Slice", same_elements=True)
def _slice(node: OnnxNode) -> Outputs:
    x = node.operand()
    if node.proto.doc_string == "Crop" and len(x.shape) == 4:  # the writer's mark of an operation on a batch of images
        x = ops.unpack_batch(ops.to_batch(x))
    slices: list[tuple[int, int, int, int]] = []
    for axis, begin, end, step in zip(*ranges_of(node, len(x.shape)), strict=True):
        if step == 0:
            raise node.error("a slice has a step of 0")
        size = x.shape[axis]
        if size < 0:
            first, last = _open_range(node, axis, begin, end, step)
        else:
            first, last = _range(node, axis, begin, end, step, size)
        if (first, last, step) != (0, 0, 1):
            slices.append((axis, first, last, step))
    if not slices:
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    axes, begins, ends, steps = (list(column) for column in zip(*slices, strict=True))
    strides = steps if any(s != 1 for s in steps) else None
    if len(slices) == 1:
        return node.of_kind(ops.slice(x, axes[0], begins[0], ends[0], strides), node.tensor(0).kind)
    return node.of_kind(ops.slice(x, axes, begins, ends, strides), node.tensor(0).kind)


def _range(node: OnnxNode, axis: int, begin: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Begin and end as CNTK counts them, along an axis of known size: end 0 is the end of the axis."""
    stop = end if abs(end) < END else None
    positions = range(size)[begin if abs(begin) < END else None : stop : step]
    if (begin >= END and step < 0) or (begin <= -END and step > 0):
        positions = range(size)[None:stop:step]
    if not len(positions):
        raise node.error(f"the range from {begin} to {end} of axis {axis} ({size}) is empty")
    first, last = (positions[0], positions[-1]) if step > 0 else (positions[-1], positions[0])
    return first, 0 if last + 1 == size else last + 1


def _open_range(node: OnnxNode, axis: int, begin: int, end: int, step: int) -> tuple[int, int]:
    """Begin and end as CNTK counts them, along an open axis."""
    if step > 0:
        return max(begin, -END), 0 if end >= END else end
    if (begin >= 0 and begin < END - 1 and begin != -1) or (end > -END and end != -2**31 and end >= -1):
        raise node.error(f"a range with a negative step along the open axis {axis} has to be the whole axis")
    return 0, 0


def ranges_of(node: OnnxNode, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """The axes of a Slice, counted from the front, and for each its begin, end and step as in the file."""
    if node.opset < 10:
        begins, ends = node.ints("starts", ()), node.ints("ends", ())
        axes, steps = node.ints("axes"), None
    else:
        begins, ends = node.integers(1, "starts"), node.integers(2, "ends")
        axes = node.integers(3, "axes") if node.has(3) else None
        steps = node.integers(4, "steps") if node.has(4) else None
    assert begins is not None and ends is not None
    axes = list(range(len(begins))) if axes is None else axes
    steps = [1] * len(begins) if steps is None else steps
    if not len(axes) == len(begins) == len(ends) == len(steps):
        raise node.error("the numbers of begins, ends, axes and steps differ")
    return [node.axis(a, rank) for a in axes], begins, ends, steps


@reads("Split", same_elements=True)
def _split(node: OnnxNode) -> Outputs:
    x, count = node.operand(), len(node.proto.output)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    sizes = split_sizes(node, x.shape[axis], count)
    pieces, begin = [], 0
    for size in sizes:
        end = 0 if begin + size == x.shape[axis] else begin + size
        pieces.append(node.of_kind(ops.slice(x, axis, begin, end), node.tensor(0).kind))
        begin += size
    return pieces


def split_sizes(node: OnnxNode, whole: int, count: int) -> list[int]:
    """The sizes of `count` parts of an axis of size `whole`, which is -3 if it is open.

    Errors: FormatError if the sizes in the file do not add up to that of the axis.
    """
    sizes = node.integers(1, "split") if node.has(1) else node.ints("split")
    if sizes is None:
        if whole < 0:
            raise node.error("an open axis cannot be split into equal parts")
        part = -(-whole // count)
        sizes = [min(part, whole - i * part) for i in range(count)]
    if len(sizes) != count or any(s <= 0 for s in sizes) or (whole >= 0 and sum(sizes) != whole):
        raise node.error(f"an axis of {whole} cannot be split into {sizes}")
    return sizes


@reads("Gather", same_elements=True)
def _gather(node: OnnxNode) -> Outputs:
    x, indices = node.tensor(0), node.tensor(1)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    known = indices.array
    if known is not None and known.dtype != object and known.size == 1 and x.shape[axis] >= 0:
        i = int(known.reshape(-1)[0])
        if not -x.shape[axis] <= i < x.shape[axis]:
            raise node.error(f"index {i} is outside of an axis of size {x.shape[axis]}")
        i %= x.shape[axis]
        part = ops.slice(x.variable, axis, i, 0 if i + 1 == x.shape[axis] else i + 1)
        if known.ndim == 0:
            part = ops.squeeze(part, [axis])
            return node.of_kind(part, x.kind)
        if known.ndim == 1:
            return node.of_kind(part, x.kind)
    if known is not None and known.dtype != object and x.shape[axis] >= 0 and (known < 0).any():
        known = np.where(known < 0, known + x.shape[axis], known)
        indices = node.reader.constant(known)
    source, index_variable = x.variable, indices.variable
    if index_variable.dtype is not source.dtype:
        index_variable = ops.cast(index_variable, source.dtype)
    if axis == 0:
        return node.of_kind(ops.gather(source, index_variable), x.kind)
    rank, index_rank = len(x.shape), len(indices.shape)
    order = [axis, *(i for i in range(rank) if i != axis)]
    gathered = ops.gather(ops.transpose(source, order), index_variable)  # [*indices, *rest]
    after = range(index_rank + axis, index_rank + rank - 1)
    permutation = [*range(index_rank, index_rank + axis), *range(index_rank), *after]
    return node.of_kind(ops.transpose(gathered, permutation) if len(permutation) > 1 else gathered, x.kind)
