"""Whether any output depends on how far unpacked sequences are padded: if not, their lengths may be rounded up.

Unpacking turns sequences into arrays and pads the shorter ones. The value in that padding is propagated through the
graph, as far as operations define their own (`Primitive.padding_value`). In attention, for example, a score in the
padding is -1e30, its exponential is 0, and so is what it contributes to a sum. Where steps meet a dimension of another
operand (`Primitive.facing_sizes`) that does not grow with them, their number has to be that of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

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

    `unpacked_axis`: the sequence axis whose steps they are.
    """

    variable: Edge
    padding: float | None
    unpacked_axis: Axis | None = None

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


def depends_on_padding(nodes: Iterable[tuple[Node, Sequence[Edge]]], outputs: Sequence[Edge]) -> bool:
    """True if an output may depend on the number of steps to which sequences are padded.

    `nodes` are those of a plan with their operands, in the order of computation.
    """
    known: dict[Edge, PaddedOperand] = {}
    for node, operands in nodes:
        primitive, attributes, output = node.primitive, node.node_attributes, node.node_outputs[0]
        if primitive.unpacks_sequences:
            for v, value in zip(node.node_outputs, primitive.unpacked_padding(attributes), strict=False):
                known[v] = PaddedOperand(v, value, operands[0].sequence_axis)
        elif any(FREE in v.shape for v in operands):
            padded = [known.get(v, PaddedOperand(v, None)) for v in operands]
            axes = {v.unpacked_axis for v in padded if v.has_steps}
            if any(v.has_steps and v.padding is None for v in padded) or len(axes) > 1:
                return True
            if _steps_face_others(node, padded):
                return True
            if FREE in output.shape:
                value = primitive.padding_value(attributes, padded)
                if value is None or output.shape.count(FREE) > 1:
                    return True
                known[output] = PaddedOperand(output, value, axes.pop())
            elif not primitive.ignores_padding(attributes, padded):
                return True
    return any(v in known for v in outputs)


def _steps_face_others(node: Node, operands: Sequence[PaddedOperand]) -> bool:
    """True if the steps of an operand meet a dimension of another one that is not an axis of steps."""
    facing = node.primitive.facing_sizes(node.node_attributes, [v.variable.shape for v in operands])
    return any(FREE in sizes and any(size != FREE for size in sizes) for sizes in facing)
