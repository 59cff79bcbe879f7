"""Slices in a loop that together are all of their operand, as the gates of an LSTM, are taken at once.

The gradient then is one concatenation, not a sum of arrays filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from jax import lax

from ...graph.function import Node
from ...graph.variable import Edge
from ..plan.parts import resolve
from .values import Context, Traced


@dataclass(frozen=True)
class Tiling:
    """Slices of one operand along one axis (negative), in order, without gaps and overlaps."""

    operand: Edge
    axis: int
    slices: Sequence[Node]

    @property
    def sizes(self) -> list[int]:
        """The size of each slice along the axis."""
        return [node.node_outputs[0].shape[self.axis] for node in self.slices]

    def split(self, ctx: Context, env: Mapping[Edge, Traced]) -> dict[Edge, Traced]:
        """The outputs of all slices."""
        x = ctx.array(env[self.operand])
        pieces = lax.split(x, self.sizes, axis=x.ndim + self.axis)
        axes = env[self.operand].axes
        return {n.node_outputs[0]: Traced(piece, axes) for n, piece in zip(self.slices, pieces, strict=True)}


def tilings_of(nodes: Sequence[Node]) -> dict[Node, Tiling]:
    """The tiling that a slice belongs to, for each slice that belongs to one."""
    groups: dict[tuple[Edge, int], list[Node]] = {}
    for node in nodes:
        piece = node.primitive.static_slice(node)
        if piece is not None:
            groups.setdefault((resolve(node.node_inputs[0]), piece.axis), []).append(node)
    tilings: dict[Node, Tiling] = {}
    for (operand, axis), slices in groups.items():
        tiling = _tiling(operand, axis, slices)
        if tiling is not None:
            tilings.update(dict.fromkeys(tiling.slices, tiling))
    return tilings


def _tiling(operand: Edge, axis: int, slices: Sequence[Node]) -> Tiling | None:
    """The slices in order if they tile the operand; None if they do not."""
    size = operand.shape[axis]
    if size <= 0:
        return None
    pieces = {node: piece for node in slices if (piece := node.primitive.static_slice(node)) is not None}
    begins = {node: piece.begin % size for node, piece in pieces.items()}
    tiling = Tiling(operand, axis, sorted(slices, key=begins.__getitem__))
    *expected, end = accumulate(tiling.sizes, initial=0)
    contiguous = end == size and [begins[node] for node in tiling.slices] == expected
    return tiling if contiguous and all(piece.stride == 1 for piece in pieces.values()) else None
