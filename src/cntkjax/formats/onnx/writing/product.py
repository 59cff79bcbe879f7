"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....graph.function import Node
from ....graph.shape import Shape
from .graph import OPEN, GraphWriter
from .table import writes


def _size(shape: Shape) -> int:
    if len(shape) == 1:
        return shape[0]
    return prod(shape) if all(d >= 0 for d in shape) else OPEN


def _merged_axes(w: GraphWriter, x: str, lead: int, old: Shape, groups: Sequence[Shape]) -> str:
    """x with each group of axes merged into one."""
    if all(len(g) == 1 for g in groups):
        return x
    return w.reshape_samples(x, lead, tuple(_size(g) for g in groups), old)


@writes("Times")
def _times(w: GraphWriter, node: Node, x: str, y: str) -> str:
    left, right = w.inputs(node)
    out_rank = int(node.node_attributes["outputRank"])
    inner = len(right.shape) - out_rank
    outer, contracted = left.shape[: len(left.shape) - inner], left.shape[len(left.shape) - inner :]
    out = right.shape[inner:]
    return _product(w, node, x, y, outer, contracted, out, transposed=False)


@writes("TransposeTimes")
def _transpose_times(w: GraphWriter, node: Node, x: str, y: str) -> str:
    left, right = w.inputs(node)
    rank = int(node.node_attributes["outputRank"])
    missing = max(rank + 1 - len(right.shape), 0)
    shape = (1,) * missing + right.shape
    if missing:
        y = w.reshape_samples(y, w.lead(right), shape)
    inner = len(shape) - rank
    outer, contracted = left.shape[: len(left.shape) - inner], left.shape[len(left.shape) - inner :]
    return _product(w, node, x, y, outer, contracted, shape[:rank], transposed=True)


def _product(
    w: GraphWriter, node: Node, x: str, y: str, outer: Shape, inner: Shape, out: Shape, transposed: bool
) -> str:
    """The product [*outer, *inner] times [*inner, *out]; `transposed`: y is [*out, *inner]."""
    left, right = w.inputs(node)
    x_lead, y_lead = w.lead(left), w.lead(right)
    groups = [out, inner] if transposed else [inner, out]
    y = _merged_axes(w, y, y_lead, (), groups)
    if transposed:
        order = [*range(y_lead), y_lead + 1, y_lead]
        y = w.node("Transpose", [y], perm=order)
    batched = y_lead > 0
    if batched or len(inner) != 1:
        x = _merged_axes(w, x, x_lead, left.shape, [outer, inner]) if batched else w.reshape_samples(
            x, x_lead, (*outer, _size(inner)), left.shape
        )
    output = w.node("MatMul", [x, y])
    lead = max(x_lead, y_lead)
    shape = (_size(outer), _size(out)) if batched else (*outer, _size(out))
    target_shape = (*outer, *out)
    return output if shape == target_shape else w.reshape_samples(output, lead, target_shape)
