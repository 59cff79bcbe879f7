"""The same elements in another arrangement, parts of tensors, tensors joined."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....graph.shape import FREE
from ....variables import Constant
from .checks import array_of, limited
from .table import Node, folds, reads
from .values import Dim, Tensor

_END = 2**31 - 1


@reads("Constant")
def _constant(node: Node) -> Any:
    value = node.attribute("value")
    if value is not None:
        array = array_of(value, node.where, node.reader.folder)
    else:
        name = next((n for n in ("value_float", "value_int", "value_floats", "value_ints")
                     if node.attribute(n) is not None), None)
        if name is None:
            raise node.fail("it has no value that can be read")
        array = np.asarray(node.attribute(name), np.float32 if "float" in name else np.int64)
    return node.reader.constant(array, node.name)


@reads("Shape")
def _shape(node: Node) -> Any:
    source = node.tensor(0)
    sizes = [Dim(source.variable, i) if d < 0 else int(d) for i, d in enumerate(source.shape)]
    return _sizes(sizes[node.int("start", 0) : node.attribute("end", None)])


def _sizes(values: list[Any]) -> np.ndarray:
    """A vector of sizes, of objects if some are open."""
    if any(isinstance(v, Dim) for v in values):
        made = np.empty(len(values), object)
        made[:] = values
        return made
    return np.asarray(values, np.int64)


@reads("Size")
def _size(node: Node) -> Any:
    shape = node.tensor(0).shape
    if any(d < 0 for d in shape):
        raise node.fail("the number of elements of an operand of open size is not known")
    return np.asarray(prod(shape), np.int64)


@folds("Identity", "Cast")
def _folded_cast(node: Node) -> Any:
    value = node.array(0)
    if node.op == "Identity" or value.dtype == object:
        return value
    to = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
    if node.int("to", 0) not in to:
        raise node.fail(f"a cast to element type {node.int('to', 0)} cannot be read")
    return value.astype(to[node.int("to", 0)])


# ---- the same elements
@reads("Reshape")
def _reshape(node: Node) -> Any:
    x, wanted = node.x(), list(node.array(1, "the shape").reshape(-1).tolist())
    if len(wanted) > 32:
        raise node.fail(f"a shape of {len(wanted)} dimensions")
    old = list(x.shape)
    if not node.int("allowzero", 0):
        if any(d == 0 and i >= len(old) for i, d in enumerate(wanted)):
            raise node.fail("it keeps a dimension that its operand does not have")
        wanted = [_dimension(node, x, i) if d == 0 else d for i, d in enumerate(wanted)]
    return node.of_kind(_reshaped(node, x, wanted), node.tensor(0).kind)


def _dimension(node: Node, x: Any, i: int) -> Any:
    return Dim(x, i) if x.shape[i] < 0 else x.shape[i]


def _reshaped(node: Node, x: Any, wanted: list[Any]) -> Any:
    """Leading dimensions that stay are left alone; of the others one at most can be open."""
    old = list(x.shape)
    keep = 0
    while keep < min(len(old), len(wanted)) and _stays(x, keep, wanted[keep]):
        keep += 1
    while keep and not _fits(old[keep:], wanted[keep:]):
        keep -= 1
    new = [-1 if isinstance(d, Dim) else int(d) for d in wanted[keep:]]
    if new.count(-1) > 1:
        raise node.fail(f"the shape {wanted} has several open dimensions that are not those of its operand")
    if keep == len(old) and not new:
        return ops.alias(x)
    if -1 in new and all(d >= 0 for d in old[keep:]):
        rest = prod(d for d in new if d >= 0)
        if not rest or prod(old[keep:]) % rest:
            raise node.fail(f"{old} cannot become {wanted}")
        new[new.index(-1)] = prod(old[keep:]) // rest
    if not keep:
        return ops.reshape(x, tuple(new))
    return ops.reshape(x, tuple(new), keep, keep) if keep == len(old) else ops.reshape(x, tuple(new), keep)


def _stays(x: Any, i: int, wanted: Any) -> bool:
    """True if dimension i may keep the size that it has."""
    if isinstance(wanted, Dim):
        return x.shape[i] < 0 and wanted.variable is not None
    return x.shape[i] >= 0 and wanted == x.shape[i]


def _fits(old: list[int], new: list[Any]) -> bool:
    """True if what is known of both allows that one becomes the other."""
    known = prod(d for d in new if not isinstance(d, Dim) and d >= 0)
    is_open = sum(isinstance(d, Dim) or d < 0 for d in new)
    if any(d < 0 for d in old):
        return is_open == 1
    return (is_open == 0 and prod(old) == known) or (is_open == 1 and known > 0 and prod(old) % known == 0)


@reads("Flatten")
def _flatten(node: Node) -> Any:
    x, axis = node.x(), node.int("axis", 1)
    rank = len(x.shape)
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis <= rank:
        raise node.fail(f"there is no axis {axis} in a tensor of rank {rank}")
    parts = [x.shape[:axis], x.shape[axis:]]
    sizes = [-1 if any(d < 0 for d in p) else prod(p) for p in parts]
    if rank and axis == 1 and x.shape[0] < 0:
        sizes[0] = Dim(x, 0)
    return node.of_kind(_reshaped(node, x, sizes))


@reads("Squeeze")
def _squeeze(node: Node) -> Any:
    x = node.x()
    axes = _axes(node, 1)
    at = [node.axis(a, len(x.shape)) for a in axes] if axes is not None else [
        i for i, d in enumerate(x.shape) if d == 1
    ]
    for i in at:  # an open dimension that is to vanish is 1
        if x.shape[i] < 0:
            x = ops.slice(x, i, 0, 1)
        elif x.shape[i] != 1:
            raise node.fail(f"axis {i} of {x.shape} is not 1")
    return node.of_kind(ops.squeeze(x, at) if at else ops.alias(x), node.tensor(0).kind)


def _axes(node: Node, operand: int) -> list[int] | None:
    """Axes from the attribute, or from an operand, as they are since opset 13 or 18."""
    if node.has(operand):
        return node.integers(operand, "axes")
    return node.ints("axes")


@reads("Unsqueeze")
def _unsqueeze(node: Node) -> Any:
    x = node.x()
    axes = _axes(node, 1)
    if axes is None:
        raise node.fail("there are no axes")
    rank = len(x.shape) + len(axes)
    places = sorted(node.axis(a, rank) for a in axes)
    if len(set(places)) < len(places) or rank > 32:
        raise node.fail(f"the axes {axes} cannot be new ones")
    for i in places:
        x = ops.expand_dims(x, i - len(x.shape) - 1)
    return node.of_kind(x, node.tensor(0).kind)


@reads("Transpose")
def _transpose(node: Node) -> Any:
    x = node.x()
    rank = len(x.shape)
    order = node.ints("perm", range(rank)[::-1])
    assert order is not None
    if sorted(order) != list(range(rank)):
        raise node.fail(f"the order {order} is none of {rank} axes")
    return node.of_kind(ops.transpose(x, order) if rank > 1 else ops.alias(x))


# ---- parts
@reads("Slice")
def _slice(node: Node) -> Any:
    x = node.x()
    if node.proto.doc_string == "Crop" and len(x.shape) == 4:  # written for an operation on images: a batch of them
        x = ops.unpack_batch(ops.to_batch(x))
    axes, begins, ends, steps = _ranges(node, len(x.shape))
    made: list[tuple[int, int, int, int]] = []
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if step == 0:
            raise node.fail("a step of 0 leads nowhere")
        size = x.shape[axis]
        if size >= 0:
            whole = range(size)[begin if abs(begin) < _END else None : end if abs(end) < _END else None : step]
            if (begin >= _END and step < 0) or (begin <= -_END and step > 0):
                whole = range(size)[None : end if abs(end) < _END else None : step]
            if not len(whole):
                raise node.fail(f"the range from {begin} to {end} of axis {axis} ({size}) is empty")
            first, last = (whole[0], whole[-1]) if step > 0 else (whole[-1], whole[0])
            last += 1
            if (first, last, step) != (0, size, 1):
                made.append((axis, first, 0 if last == size else last, step))
        elif step < 0:
            if (begin >= 0 and begin < _END - 1 and begin != -1) or (end > -_END and end != -2**31 and end >= -1):
                raise node.fail(f"a range backwards along the open axis {axis} has to be all of it")
            made.append((axis, 0, 0, step))
        else:
            begin, end = max(begin, -_END), 0 if end >= _END else end
            if (begin, end, step) != (0, 0, 1):
                made.append((axis, begin, end, step))
    if not made:
        return node.of_kind(ops.alias(x), node.tensor(0).kind)
    columns = [list(c) for c in zip(*made, strict=True)]
    steps = columns[3] if any(s != 1 for s in columns[3]) else None
    first = [c[0] for c in columns]
    if len(made) == 1:
        return node.of_kind(ops.slice(x, first[0], first[1], first[2], steps), node.tensor(0).kind)
    return node.of_kind(ops.slice(x, columns[0], columns[1], columns[2], steps), node.tensor(0).kind)


def _ranges(node: Node, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
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
    axis = node.axis(node.int("axis", 0), len(x.shape))
    sizes = _split_sizes(node, x.shape[axis], count)
    made, at = [], 0
    for size in sizes:
        end = 0 if at + size == x.shape[axis] else at + size
        made.append(node.of_kind(ops.slice(x, axis, at, end), node.tensor(0).kind))
        at += size
    return made


def _split_sizes(node: Node, whole: int, count: int) -> list[int]:
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
    axis = node.axis(node.int("axis", 0), len(x.shape))
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
    batch = node.int("batch_dims", 0)
    if indices.shape[-1:] != (1,) or batch not in (0, 1):
        raise node.fail("only gathers by one index each, of all samples or within each of one axis, can be read")
    chosen = ops.squeeze(indices, [len(indices.shape) - 1])
    if chosen.dtype is not x.dtype:
        chosen = ops.cast(chosen, x.dtype)
    if batch == 0:
        return node.of_kind(ops.gather(x, chosen), node.tensor(0).kind)
    return node.of_kind(ops.unpack_batch(ops.gather(ops.to_batch(x), ops.to_batch(chosen))), node.tensor(0).kind)


# ---- joined
@reads("Concat")
def _concat(node: Node) -> Any:
    xs = node.xs()
    if len(xs) < len(node):
        raise node.fail("an operand is missing")
    axis = node.axis(node.int("axis", 1), len(xs[0].shape))
    return node.of_kind(ops.splice(*xs, axis=axis) if len(xs) > 1 else ops.alias(xs[0]))


@reads("Expand")
def _expand(node: Node) -> Any:
    x, wanted = node.x(), list(node.array(1, "the shape").reshape(-1).tolist())
    return node.of_kind(expanded(node, x, wanted), node.tensor(0).kind)


def expanded(node: Node, x: Any, wanted: list[Any]) -> Any:
    """x broadcast to a shape: by adding zeros of it, those of open axes taken from where they come from."""
    if len(wanted) > 32 or any(not isinstance(d, Dim) and d < 0 for d in wanted):
        raise node.fail(f"the shape {wanted}")
    sizes = [1 if isinstance(d, Dim) else int(d) for d in wanted]
    limited(prod(sizes), node.where)
    dtype = x.dtype
    made = x
    own = (1,) * (len(sizes) - len(x.shape)) + tuple(x.shape)
    if len(sizes) > len(x.shape) or any(s > 1 and s != o for s, o in zip(sizes, own[-len(sizes) :], strict=False)):
        made = ops.plus(made, Constant(np.zeros(tuple(sizes), dtype), dtype=dtype))
    for i, size in enumerate(wanted):
        if isinstance(size, Dim):
            if size.variable is None:
                raise node.fail("it expands to a size that is computed from open sizes")
            if len(own) == len(wanted) and own[i] == FREE:
                continue  # as large as that already, or else it could not be expanded to it
            made = ops.plus(made, _zeros_along(size, len(wanted) - i - 1, dtype))
    return made if made is not x else ops.alias(x)


def _zeros_along(size: Dim, behind: int, dtype: Any) -> Any:
    """Zeros [size, 1, 1, ...] with so many axes behind."""
    zeros = ops.zeros_like(size.variable)
    others = [i for i in range(len(size.variable.shape)) if i != size.axis]
    vector = ops.reduce_sum(zeros, axis=others, keepdims=False) if others else zeros
    vector = ops.cast(vector, dtype) if vector.dtype is not dtype else vector
    return ops.reshape(vector, (-1,) + (1,) * behind) if behind else vector


@reads("Tile")
def _tile(node: Node) -> Any:
    x = node.x()
    repeats = node.integers(1, "repeats")
    if len(repeats) != len(x.shape) or any(r < 1 for r in repeats):
        raise node.fail(f"{repeats} repeats of a tensor of rank {len(x.shape)}")
    limited(prod(repeats) * prod(d for d in x.shape if d > 0), node.where)
    made = x
    for axis, count in enumerate(repeats):
        if count > 1024:
            raise node.fail(f"{count} repeats")
        made = ops.splice(*[made] * count, axis=axis) if count > 1 else made
    return node.of_kind(made if made is not x else ops.alias(x), node.tensor(0).kind)


@reads("ConstantOfShape")
def _constant_of_shape(node: Node) -> Any:
    wanted = list(node.array(0, "the shape").reshape(-1).tolist())
    given = node.attribute("value")
    value = np.zeros(1, np.float32) if given is None else array_of(given, node.where, node.reader.folder)
    if value.size != 1 or len(wanted) > 32:
        raise node.fail("it needs one value")
    if any(isinstance(d, Dim) for d in wanted):
        start = node.reader.constant(value.reshape(()))
        return Tensor(start.kind, expanded(node, start.variable, wanted), uniform=value.reshape(()))
    if any(d < 0 for d in wanted):
        raise node.fail(f"the shape {wanted}")
    limited(prod(wanted), node.where)
    return np.full(wanted, value.reshape(()), value.dtype)


@reads("Range")
def _range(node: Node) -> Any:
    start, stop, step = (node.array(i).reshape(()).item() for i in range(3))
    if any(isinstance(v, Dim) for v in (start, stop, step)) or not step:
        raise node.fail("a range of open size cannot be read")
    limited(max(int((stop - start) / step), 0), node.where)
    return np.arange(start, stop, step).astype(node.array(0).dtype)


@reads("Pad")
def _pad(node: Node) -> Any:
    x, mode = node.x(), node.text("mode", "constant")
    if node.opset < 11:
        widths, value = node.ints("pads", ()), node.number("value", 0.0)
    else:
        widths = node.integers(1, "pads")
        value = float(node.array(2).reshape(())) if node.has(2) else 0.0
    assert widths is not None
    rank = len(x.shape)
    if node.has(3):
        axes = [node.axis(a, rank) for a in node.integers(3, "axes")]
        whole = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            whole[axis], whole[rank + axis] = widths[i], widths[len(axes) + i]
        widths = whole
    if len(widths) != 2 * rank:
        raise node.fail(f"{len(widths)} widths for {rank} axes")
    cut = [(i, max(-widths[i], 0), max(-widths[rank + i], 0)) for i in range(rank)]
    for axis, head, foot in cut:
        if head or foot:
            x = ops.slice(x, axis, head, -foot)
    pattern = [(max(widths[i], 0), max(widths[rank + i], 0)) for i in range(rank)]
    limited(prod(d + sum(p) for d, p in zip(x.shape, pattern, strict=True) if d >= 0), node.where)
    if mode == "edge":
        return node.of_kind(_edges(x, pattern), node.tensor(0).kind)
    modes = {"constant": ops.CONSTANT_PAD, "reflect": ops.REFLECT_PAD}
    if mode not in modes:
        raise node.fail(f"the mode {mode!r} cannot be read")
    return node.of_kind(ops.pad(x, pattern, modes[mode], value), node.tensor(0).kind)


def _edges(x: Any, pattern: list[tuple[int, int]]) -> Any:
    for axis, (head, foot) in enumerate(pattern):
        parts = [ops.slice(x, axis, 0, 1)] * head + [x] + [ops.slice(x, axis, -1, 0)] * foot
        x = ops.splice(*parts, axis=axis) if len(parts) > 1 else x
    return x


@reads("EyeLike")
def _eye(node: Node) -> Any:
    x = node.x()
    if node.int("k", 0):
        raise node.fail("only the main diagonal can be read")
    return node.of_kind(ops.eye_like(x, sparse_output=False))


@reads("OneHot")
def _one_hot(node: Node) -> Any:
    x, depth = node.x(0), node.integers(1, "depth")
    low, high = node.array(2, "values").reshape(-1)[:2].tolist()
    limited(depth[0], node.where)
    axis = node.int("axis", -1)
    made = ops.one_hot(x, depth[0], False, axis=axis if axis < 0 else node.axis(axis, len(x.shape) + 1))
    if node.tensor(2).kind == "float" and made.dtype is not node.reader.constant(node.array(2)).variable.dtype:
        made = ops.cast(made, node.array(2).dtype.type)
    if (low, high) == (0, 1):
        return node.of_kind(made, node.tensor(2).kind)
    spread = ops.element_times(made, Constant(high - low, dtype=made.dtype))
    return node.of_kind(ops.plus(spread, Constant(low, dtype=made.dtype)), node.tensor(2).kind)


@reads("Trilu")
def _trilu(node: Node) -> Any:
    x = node.x()
    if len(x.shape) < 2 or any(d < 0 for d in x.shape[-2:]):
        raise node.fail("triangles of open size cannot be read")
    k = int(node.array(1).reshape(())) if node.has(1) else 0
    limited(prod(x.shape[-2:]), node.where)
    ones = np.ones(x.shape[-2:], x.dtype)
    mask = np.triu(ones, k) if node.int("upper", 1) else np.tril(ones, k)
    return node.of_kind(ops.element_select(Constant(mask, dtype=x.dtype), x, Constant(0, dtype=x.dtype)),
                        node.tensor(0).kind)


# ---- known arrays
@folds("Reshape")
def _folded_reshape(node: Node) -> Any:
    value, shape = node.array(0), node.integers(1)
    shape = [value.shape[i] if d == 0 and not node.int("allowzero", 0) else d for i, d in enumerate(shape)]
    return value.reshape(shape)


@folds("Transpose")
def _folded_transpose(node: Node) -> Any:
    return np.transpose(node.array(0), node.ints("perm"))


@folds("Squeeze")
def _folded_squeeze(node: Node) -> Any:
    axes = _axes(node, 1)
    return np.squeeze(node.array(0), None if axes is None else tuple(axes))


@folds("Unsqueeze")
def _folded_unsqueeze(node: Node) -> Any:
    value, axes = node.array(0), _axes(node, 1) or []
    if value.ndim + len(axes) > 32:
        raise node.fail(f"{len(axes)} new axes")
    return np.expand_dims(value, tuple(axes))


@folds("Concat")
def _folded_concat(node: Node) -> Any:
    values = [node.array(i) for i in range(len(node))]
    limited(sum(v.size for v in values), node.where)
    return np.concatenate(values, node.int("axis", 1))


@folds("Slice")
def _folded_slice(node: Node) -> Any:
    value = node.array(0)
    cut: list[Any] = [slice(None)] * value.ndim
    for axis, begin, end, step in zip(*_ranges(node, value.ndim), strict=True):
        cut[axis] = slice(begin, end if end > -_END else None, step)
    return value[tuple(cut)]


@folds("Split")
def _folded_split(node: Node) -> Any:
    value, axis = node.array(0), node.int("axis", 0)
    sizes = _split_sizes(node, value.shape[axis], len(node.proto.output))
    return np.split(value, np.cumsum(sizes)[:-1], axis)


@folds("Gather")
def _folded_gather(node: Node) -> Any:
    value, indices = node.array(0), node.array(1)
    if indices.dtype == object:
        raise node.fail("it gathers by the size of a free axis")
    axis = node.axis(node.int("axis", 0), value.ndim)
    limited(value.size // max(value.shape[axis], 1) * indices.size, node.where)
    if indices.size and not -value.shape[axis] <= indices.min() <= indices.max() < value.shape[axis]:
        raise node.fail(f"an index outside of an axis of {value.shape[axis]}")
    return np.take(value, indices.astype(np.int64), axis)


@folds("ReduceProd")
def _folded_product(node: Node) -> Any:
    value = node.array(0)
    keep = bool(node.int("keepdims", 1))
    axes = _axes(node, 1)
    return np.prod(value, axis=None if axes is None else tuple(axes), keepdims=keep)


