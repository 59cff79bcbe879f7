"""Tensors joined, repeated, bordered and made of a few numbers."""


from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....graph.shape import FREE
from ....variables import Constant
from .checks import array_of, limited
from .table import Node, reads
from .values import Dim, Tensor


@reads("Concat")
def _concat(node: Node) -> Any:
    xs = node.xs()
    if len(xs) < len(node):
        raise node.fail("an operand is missing")
    axis = node.axis(node.whole("axis", 1), len(xs[0].shape))
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
    if node.whole("k", 0):
        raise node.fail("only the main diagonal can be read")
    return node.of_kind(ops.eye_like(x, sparse_output=False))


@reads("OneHot")
def _one_hot(node: Node) -> Any:
    x, depth = node.x(0), node.integers(1, "depth")
    low, high = node.array(2, "values").reshape(-1)[:2].tolist()
    limited(depth[0], node.where)
    axis = node.whole("axis", -1)
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
    mask = np.triu(ones, k) if node.whole("upper", 1) else np.tril(ones, k)
    return node.of_kind(ops.element_select(Constant(mask, dtype=x.dtype), x, Constant(0, dtype=x.dtype)),
                        node.tensor(0).kind)


