"""Constants, sizes, and operations that rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....ops.functions import Function
from ....variables import Constant
from .checks import array_of
from .table import OnnxNode, reads
from .values import Dim, Operand, Outputs


@reads("Constant")
def _constant(node: OnnxNode) -> Outputs:
    value = node.attribute("value")
    if value is not None:
        array = array_of(value, node.where, node.reader.folder)
    else:
        name = next((n for n in ("value_float", "value_int", "value_floats", "value_ints")
                     if node.attribute(n) is not None), None)
        if name is None:
            raise node.error("it has no value that can be read")
        array = np.asarray(node.attribute(name), np.float32 if "float" in name else np.int64)
    return node.reader.constant(array, node.name)


@reads("Shape")
def _shape(node: OnnxNode) -> Outputs:
    source = node.tensor(0)
    sizes = [Dim(source.variable, i) if d < 0 else int(d) for i, d in enumerate(source.shape)]
    return _sizes(sizes[node.integer("start", 0) : node.attribute("end", None)])


def _sizes(values: Sequence[int | Dim]) -> np.ndarray:
    """A vector of sizes, of objects if some of them are open."""
    if any(isinstance(v, Dim) for v in values):
        vector = np.empty(len(values), object)
        vector[:] = values
        return vector
    return np.asarray(values, np.int64)


@reads("Size")
def _size(node: OnnxNode) -> Outputs:
    shape = node.tensor(0).shape
    if any(d < 0 for d in shape):
        raise node.error("the number of elements of an operand of open size is not known")
    return np.asarray(prod(shape), np.int64)


# ---- rearranged elements
@reads("Reshape", same_elements=True)
def _reshape(node: OnnxNode) -> Outputs:
    x, shape = node.operand(), list(wanted_shape(node))
    if len(shape) > 32:
        raise node.error(f"a shape of {len(shape)} dimensions")
    old = list(x.shape)
    if not node.integer("allowzero", 0):
        if any(d == 0 and i >= len(old) for i, d in enumerate(shape)):
            raise node.error("it keeps a dimension that its operand does not have")
        shape = [_dimension(node, x, i) if d == 0 else d for i, d in enumerate(shape)]
    return node.of_kind(_reshaped(node, x, shape), node.tensor(0).kind)


def wanted_shape(node: OnnxNode) -> Sequence[Any]:
    """The dimensions that a Reshape names, of integers and sizes of free axes; before opset 5 an attribute has them."""
    return node.ints("shape") or () if node.opset < 5 else node.array(1, "the shape").reshape(-1).tolist()


def _dimension(node: OnnxNode, x: Operand, i: int) -> int | Dim:
    return Dim(x, i) if x.shape[i] < 0 else x.shape[i]


def _reshaped(node: OnnxNode, x: Operand, shape: Sequence[int | Dim]) -> Operand:
    """x in another shape. Leading dimensions that stay are not reshaped; at most one of the others may be open."""
    old = list(x.shape)
    lead = [d for d in shape if isinstance(d, Dim)]
    if len(lead) > 1 and old[0] < 0 and [*lead, *old[1:]] == list(shape) and all(d.variable is not None for d in lead):
        return _split(x, lead)
    if sum(isinstance(d, Dim) for d in shape) > sum(d < 0 for d in old):
        raise node.error(f"the shape {shape} has more open dimensions than {old}")
    keep = 0
    while keep < min(len(old), len(shape)) and _stays(x, keep, shape[keep]):
        keep += 1
    while keep and not _compatible(old[keep:], shape[keep:]):
        keep -= 1
    new = [-1 if isinstance(d, Dim) else int(d) for d in shape[keep:]]
    if new.count(-1) > 1:
        raise node.error(f"the shape {shape} has several open dimensions that are not those of its operand")
    if keep == len(old) and not new:
        return ops.alias(x)
    if -1 in new and all(d >= 0 for d in old[keep:]):
        rest = prod(d for d in new if d >= 0)
        if not rest or prod(old[keep:]) % rest:
            raise node.error(f"{old} cannot be reshaped to {shape}")
        new[new.index(-1)] = prod(old[keep:]) // rest
    if not keep:
        return ops.reshape(x, tuple(new))
    return ops.reshape(x, tuple(new), keep, keep) if keep == len(old) else ops.reshape(x, tuple(new), keep)


def _split(x: Operand, lead: Sequence[Dim]) -> Operand:
    """x `[n, *rest]` as `[*lead, *rest]`, where only data tell the sizes: rows are gathered by their numbers."""
    first, *others = map(_numbers, lead)
    number = first
    for other in others:
        size = ops.plus(ops.reduce_max(other), Constant(1, dtype=other.dtype))
        number = ops.plus(ops.element_times(ops.expand_dims(number, -1), size), other)
    return ops.gather(x, number)


def _numbers(dimension: Dim) -> Function:
    """0, 1, ... along an axis of open size, which only a recurrence counts."""
    assert dimension.variable is not None
    one_each = ops.ones_like(dimension.variable)
    rank = len(one_each.shape)
    if others := [i for i in range(rank) if i != dimension.axis]:
        one_each = ops.reduce_max(one_each, others, keepdims=False)
    steps = ops.to_sequence(ops.to_batch(ops.expand_dims(one_each, -2)))
    placeholder = ops.placeholder()
    count = ops.plus(ops.sequence.past_value(placeholder), steps)
    counted = ops.unpack_batch(ops.sequence.unpack(count.replace_placeholders({placeholder: count.output}), 0, True))
    return ops.minus(ops.squeeze(ops.slice(counted, 0, 0, 1), [0]), Constant(1, dtype=one_each.dtype))


def _stays(x: Operand, i: int, wanted: int | Dim) -> bool:
    """True if dimension i may keep the size that it has."""
    if isinstance(wanted, Dim):
        return x.shape[i] < 0 and wanted.variable is not None
    return x.shape[i] >= 0 and wanted == x.shape[i]


def _compatible(old: list[int], new: Sequence[int | Dim]) -> bool:
    """True if the known dimensions allow reshaping one to the other."""
    known = prod(d for d in new if not isinstance(d, Dim) and d >= 0)
    is_open = sum(isinstance(d, Dim) or d < 0 for d in new)
    if any(d < 0 for d in old):
        return is_open == 1
    return (is_open == 0 and prod(old) == known) or (is_open == 1 and known > 0 and prod(old) % known == 0)


@reads("Flatten")
def _flatten(node: OnnxNode) -> Outputs:
    x, axis = node.operand(), node.integer("axis", 1)
    rank = len(x.shape)
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis <= rank:
        raise node.error(f"there is no axis {axis} in a tensor of rank {rank}")
    parts = [x.shape[:axis], x.shape[axis:]]
    sizes = [-1 if any(d < 0 for d in p) else prod(p) for p in parts]
    if rank and axis == 1 and x.shape[0] < 0:
        sizes[0] = Dim(x, 0)
    return node.of_kind(_reshaped(node, x, sizes))


@reads("Squeeze", same_elements=True)
def _squeeze(node: OnnxNode) -> Outputs:
    x = node.operand()
    axes = node.axes(1)
    positions = [node.axis(a, len(x.shape)) for a in axes] if axes is not None else [
        i for i, d in enumerate(x.shape) if d == 1
    ]
    for i in positions:  # an open dimension that is squeezed is 1
        if x.shape[i] < 0:
            x = ops.slice(x, i, 0, 1)
        elif x.shape[i] != 1:
            raise node.error(f"axis {i} of {x.shape} is not 1")
    return node.of_kind(ops.squeeze(x, positions) if positions else ops.alias(x), node.tensor(0).kind)


@reads("Unsqueeze", same_elements=True)
def _unsqueeze(node: OnnxNode) -> Outputs:
    x = node.operand()
    axes = node.axes(1)
    if axes is None:
        raise node.error("there are no axes")
    rank = len(x.shape) + len(axes)
    places = sorted(node.axis(a, rank) for a in axes)
    if len(set(places)) < len(places) or rank > 32:
        raise node.error(f"the axes {axes} cannot be new ones")
    for i in places:
        x = ops.expand_dims(x, i - len(x.shape) - 1)
    return node.of_kind(x, node.tensor(0).kind)


@reads("Transpose", same_elements=True)
def _transpose(node: OnnxNode) -> Outputs:
    x = node.operand()
    rank = len(x.shape)
    order = node.ints("perm", range(rank)[::-1])
    assert order is not None
    if sorted(order) != list(range(rank)):
        raise node.error(f"the order {order} is none of {rank} axes")
    return node.of_kind(ops.transpose(x, order) if rank > 1 else ops.alias(x))
