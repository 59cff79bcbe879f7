"""Parts of tensors: slices, pieces, elements by index."""


from __future__ import annotations

from typing import Any

import numpy as np

from .... import ops
from .table import Node, reads

END = 2**31 - 1


@reads("Slice")
def _slice(node: Node) -> Any:
    x = node.x()
    if node.proto.doc_string == "Crop" and len(x.shape) == 4:  # written for an operation on images: a batch of them
        x = ops.unpack_batch(ops.to_batch(x))
    axes, begins, ends, steps = ranges_of(node, len(x.shape))
    made: list[tuple[int, int, int, int]] = []
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if step == 0:
            raise node.fail("a step of 0 leads nowhere")
        size = x.shape[axis]
        if size >= 0:
            whole = range(size)[begin if abs(begin) < END else None : end if abs(end) < END else None : step]
            if (begin >= END and step < 0) or (begin <= -END and step > 0):
                whole = range(size)[None : end if abs(end) < END else None : step]
            if not len(whole):
                raise node.fail(f"the range from {begin} to {end} of axis {axis} ({size}) is empty")
            first, last = (whole[0], whole[-1]) if step > 0 else (whole[-1], whole[0])
            last += 1
            if (first, last, step) != (0, size, 1):
                made.append((axis, first, 0 if last == size else last, step))
        elif step < 0:
            if (begin >= 0 and begin < END - 1 and begin != -1) or (end > -END and end != -2**31 and end >= -1):
                raise node.fail(f"a range backwards along the open axis {axis} has to be all of it")
            made.append((axis, 0, 0, step))
        else:
            begin, end = max(begin, -END), 0 if end >= END else end
            if (begin, end, step) != (0, 0, 1):
                made.append((axis, begin, end, step))
    if not made:
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    columns = [list(c) for c in zip(*made, strict=True)]
    steps_of = columns[3] if any(s != 1 for s in columns[3]) else None
    starts = [c[0] for c in columns]
    if len(made) == 1:
        return node.of_kind(ops.slice(x, starts[0], starts[1], starts[2], steps_of), node.tensor(0).kind)
    return node.of_kind(ops.slice(x, columns[0], columns[1], columns[2], steps_of), node.tensor(0).kind)


def ranges_of(node: Node, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
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
        raise node.fail("there are not as many begins, ends, axes and steps of each")
    return [node.axis(a, rank) for a in axes], begins, ends, steps


@reads("Split")
def _split(node: Node) -> Any:
    x, count = node.x(), len(node.proto.output)
    axis = node.axis(node.whole("axis", 0), len(x.shape))
    sizes = split_sizes(node, x.shape[axis], count)
    made, at = [], 0
    for size in sizes:
        end = 0 if at + size == x.shape[axis] else at + size
        made.append(node.of_kind(ops.slice(x, axis, at, end), node.tensor(0).kind))
        at += size
    return made


def split_sizes(node: Node, whole: int, count: int) -> list[int]:
    sizes = node.integers(1, "split") if node.has(1) else node.ints("split")
    if sizes is None:
        if whole < 0:
            raise node.fail("an open axis cannot be split into equal parts")
        part = -(-whole // count)
        sizes = [min(part, whole - i * part) for i in range(count)]
    if len(sizes) != count or any(s <= 0 for s in sizes) or (whole >= 0 and sum(sizes) != whole):
        raise node.fail(f"an axis of {whole} cannot be split into {sizes}")
    return sizes


@reads("Gather")
def _gather(node: Node) -> Any:
    x, indices = node.tensor(0), node.tensor(1)
    axis = node.axis(node.whole("axis", 0), len(x.shape))
    known = indices.array
    if known is not None and known.dtype != object and known.size == 1 and x.shape[axis] >= 0:
        i = int(known.reshape(-1)[0])
        if not -x.shape[axis] <= i < x.shape[axis]:
            raise node.fail(f"there is no index {i} in an axis of {x.shape[axis]}")
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
    source, chosen = x.variable, indices.variable
    if chosen.dtype is not source.dtype:
        chosen = ops.cast(chosen, source.dtype)
    if axis == 0:
        return node.of_kind(ops.gather(source, chosen), x.kind)
    rank, own = len(x.shape), len(indices.shape)
    order = [axis, *(i for i in range(rank) if i != axis)]
    taken = ops.gather(ops.transpose(source, order), chosen)  # [*indices, *rest]
    back = [*range(own, own + axis), *range(own), *range(own + axis, own + rank - 1)]
    return node.of_kind(ops.transpose(taken, back) if len(back) > 1 else taken, x.kind)


@reads("GatherND")
def _gather_nd(node: Node) -> Any:
    """Whole slices by one index each, from every sample of the leading axes."""
    x, indices = node.x(0), node.x(1)
    batch = node.whole("batch_dims", 0)
    if indices.shape[-1:] != (1,) or batch not in (0, 1):
        raise node.fail("only gathers by one index each, of all samples or within each of one axis, can be read")
    chosen = ops.squeeze(indices, [len(indices.shape) - 1])
    if chosen.dtype is not x.dtype:
        chosen = ops.cast(chosen, x.dtype)
    if batch == 0:
        return node.of_kind(ops.gather(x, chosen), node.tensor(0).kind)
    return node.of_kind(ops.unpack_batch(ops.gather(ops.to_batch(x), ops.to_batch(chosen))), node.tensor(0).kind)


