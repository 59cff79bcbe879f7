"""Whether any output depends on how far unpacked sequences are padded: if not, their lengths may be rounded up.

Unpacked sequences are as long as the longest of the minibatch. A program for longer ones has steps beyond that.

Unpacking turns sequences into arrays and pads the shorter ones. The value in that padding is propagated through the
graph, as far as operations define their own (`Primitive.padding_value`). In attention, for example, a score in the
padding is -1e30, its exponential is 0, and so is what it contributes to a sum. Otherwise the steps beyond the longest
sequence are masked where an operation would mix them with others: a value is put there that adds nothing. Where steps
meet a dimension of another operand (`Primitive.facing_sizes`) that does not grow with them, or are an output, their
number has to be that of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...graph.axis import Axis
from ...graph.function import Node
from ...graph.shape import FREE
from ...graph.variable import Edge, Leaf, value_of

FAR = 1e30  # beyond all values in data: the exponential of its negative is 0
ANYTHING = float(np.nan)  # a value in padding of which nothing is known; it equals no number


@dataclass(frozen=True)
class PaddedOperand:
    """An operand, and the value in the padding of its steps; None if it has no axis of unpacked steps.

    `unpacked_axis`: the sequence axis whose steps they are. `is_masked`: a mask puts the value there, so that the
    operation can tell how many steps there are.
    """

    variable: Edge
    padding: float | None
    unpacked_axis: Axis | None = None
    is_masked: bool = False

    @property
    def has_steps(self) -> bool:
        """True if one of its static axes holds the steps of unpacked sequences."""
        return FREE in self.variable.shape

    @property
    def step_axis(self) -> Axis:
        """The (first) axis of steps."""
        return Axis(self.variable.shape.index(FREE) - len(self.variable.shape))

    @property
    def constant(self) -> float:
        """Its value if it is a constant scalar, otherwise ANYTHING."""
        v = self.variable
        return float(value_of(v)) if isinstance(v, Leaf) and v.is_constant and v.shape == () else ANYTHING

    def reduces_steps(self, axes: Collection[Axis]) -> bool | None:
        """Whether a reduction along these axes reduces over its steps; None if it has several axes of steps."""
        if self.variable.shape.count(FREE) > 1:
            return None
        return any(axis in (self.step_axis, Axis.all_static_axes()) for axis in axes)


class Mask(NamedTuple):
    """What operands of a node get beyond the longest sequence along an axis."""

    value: float
    axis: Axis


_NEUTRAL = 0.0, -FAR, FAR  # of sums, products and means; of softmax and maxima; of minima


def masks(nodes: Sequence[tuple[Node, Sequence[Edge]]], outputs: Sequence[Edge]) -> dict[Node, Mask] | None:
    """With which masks no output depends on the number of steps to which sequences are padded; None if there are none.

    `nodes` are those of a plan with their operands, in the order of computation.
    """
    found = _masks(nodes, outputs, ())
    return _masks(nodes, outputs, _NEUTRAL) if found is None else found


def _masks(
    nodes: Iterable[tuple[Node, Sequence[Edge]]], outputs: Sequence[Edge], neutral: Sequence[float]
) -> dict[Node, Mask] | None:
    """As `masks`, with masks of these values.

    If there are any, nothing is known of the steps beyond the longest sequence: they repeat the last one within it.
    """
    known: dict[Edge, PaddedOperand] = {}
    found: dict[Node, Mask] = {}
    for node, operands in nodes:
        if node.primitive.unpacks_sequences:
            paddings = node.primitive.unpacked_padding(node.node_attributes)
            for v, value in zip(node.node_outputs, paddings, strict=False):
                known[v] = PaddedOperand(v, ANYTHING if neutral else value, operands[0].sequence_axis)
        elif any(FREE in v.shape for v in operands):
            outcome = _outcome(node, [known.get(v, PaddedOperand(v, None)) for v in operands], neutral)
            if outcome is None:
                return None
            output, mask = outcome
            if output.has_steps:
                known[output.variable] = output
            if mask is not None:
                found[node] = mask
    return None if any(v in known for v in outputs) else found


def _outcome(
    node: Node, operands: Sequence[PaddedOperand], neutral: Sequence[float]
) -> tuple[PaddedOperand, Mask | None] | None:
    """The output of a node, and the mask that it needs; None if the number of steps gets into it with any mask."""
    primitive, attributes, output = node.primitive, node.node_attributes, node.node_outputs[0]
    steps = [v for v in operands if v.has_steps]
    axes = {v.unpacked_axis for v in steps}
    if any(v.padding is None for v in steps) or len(axes) > 1 or output.shape.count(FREE) > 1:
        return None
    if _steps_face_others(node, operands):
        return None
    (axis,) = axes
    for value in (None, *neutral):
        masked = operands if value is None else [
            replace(v, padding=value, is_masked=True) if v.has_steps else v for v in operands
        ]
        mask = None if value is None or axis is None else Mask(value, axis)
        if FREE not in output.shape:
            if primitive.ignores_padding(attributes, masked):
                return PaddedOperand(output, None), mask
        elif (padding := primitive.padding_value(attributes, masked)) is not None:
            return PaddedOperand(output, padding, axis), mask
    return None


def _steps_face_others(node: Node, operands: Sequence[PaddedOperand]) -> bool:
    """True if the steps of an operand meet a dimension of another one that is not an axis of steps."""
    facing = node.primitive.facing_sizes(node.node_attributes, [v.variable.shape for v in operands])
    return any(FREE in sizes and any(size != FREE for size in sizes) for sizes in facing)
