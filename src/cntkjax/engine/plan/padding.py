"""Whether any output depends on how far unpacked sequences are padded: if not, their lengths may be rounded up.

Unpacked sequences are as long as the longest of the minibatch. A program for longer ones has steps beyond that.

Unpacking turns sequences into arrays and pads the shorter ones. The value in that padding is propagated through the
graph, as far as operations define their own (`Primitive.padding_value`). In attention, for example, a score in the
padding is -1e30, its exponential is 0, and so is what it contributes to a sum. Otherwise the steps beyond the longest
sequence are masked where an operation would mix them with others: a value is put there that adds nothing. Where steps
meet a dimension of another operand (`Primitive.facing_sizes`) that does not grow with them, or are an output, their
number has to be that of the longest sequence. An array with several axes of steps, as scores of steps with others,
is looked at once for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from ...graph.axis import Axis
from ...graph.function import Node
from ...graph.shape import FREE, Shape
from ...graph.variable import Edge, Leaf, value_of

FAR = 1e30  # beyond all values in data: the exponential of its negative is 0
ANYTHING = float(np.nan)  # a value in padding of which nothing is known; it equals no number
OTHER = -4  # the size of an axis of steps, beside the axis that is looked at
IN_NONE = 0  # the place of an axis of which nothing is left in the output; others are counted from the end


@dataclass(frozen=True)
class PaddedOperand:
    """An operand, and the value in the padding of its steps; None if it has no axis of unpacked steps.

    `unpacked_axis`: the sequence axis whose steps they are. `is_masked`: a mask puts the value there, so that the
    operation can tell how many steps there are. `place`: the static axis of the steps, counted from the end. Where a
    variable has several of those, as scores of steps with others, they are looked at one by one.
    """

    variable: Edge
    padding: float | None
    unpacked_axis: Axis | None = None
    is_masked: bool = False
    place: int | None = None

    @property
    def shape(self) -> Shape:
        """That of the variable, with `OTHER` for further axes of steps."""
        shape = self.variable.shape
        return tuple(OTHER if n == FREE and i != self.place else n for i, n in enumerate(shape, -len(shape)))

    @property
    def has_steps(self) -> bool:
        """True if one of its static axes holds the steps of unpacked sequences."""
        return self.place is not None

    @property
    def step_axis(self) -> Axis:
        """The axis of steps."""
        assert self.place is not None
        return Axis(self.place)

    @property
    def constant(self) -> float:
        """Its value if it is a constant scalar, otherwise ANYTHING."""
        v = self.variable
        return float(value_of(v)) if isinstance(v, Leaf) and v.is_constant and v.shape == () else ANYTHING

    def reduces_steps(self, axes: Collection[Axis]) -> bool:
        """Whether a reduction along these axes reduces over its steps."""
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
    known: dict[Edge, list[PaddedOperand]] = {}
    found: dict[Node, Mask] = {}
    for node, operands in nodes:
        if node.primitive.unpacks_sequences and FREE not in operands[0].shape:
            paddings = node.primitive.unpacked_padding(node.node_attributes)
            for v, value in zip(node.node_outputs, paddings, strict=False):
                padding = ANYTHING if neutral else value
                known[v] = [PaddedOperand(v, padding, operands[0].sequence_axis, place=-len(v.shape))]
        elif any(FREE in v.shape for v in operands):
            axes = [known.get(v, []) for v in operands]
            if any(v.shape.count(FREE) != len(known.get(v, ())) for v in operands):
                return None
            ways = list(_ways_through(node, operands, axes))
            if {v for way in ways for v in way if v.has_steps} != {v for several in axes for v in several}:
                return None
            for way in ways:
                outcome = _outcome(node, way, neutral)
                if outcome is None:
                    return None
                output, mask = outcome
                if output.has_steps:
                    known.setdefault(output.variable, []).append(output)
                if mask is not None:
                    if any(len(several) > 1 for several in axes):  # a mask is along one axis
                        return None
                    found[node] = mask
    return None if any(v in known for v in outputs) else found


def _ways_through(
    node: Node, operands: Sequence[Edge], axes: Sequence[Sequence[PaddedOperand]]
) -> Iterator[Sequence[PaddedOperand]]:
    """The operands of a node for each axis of steps. It is that of several operands where these have to be equal."""
    for chosen in product(*([PaddedOperand(v, None), *several] for v, several in zip(operands, axes, strict=True))):
        number = sum(v.has_steps for v in chosen)
        facing = [sizes for sizes in _facing(node, chosen) if FREE in sizes]
        together = number == 1 or any(sizes.count(FREE) == number for sizes in facing)
        if number and together and not any(OTHER in sizes for sizes in facing):
            yield chosen


def _facing(node: Node, operands: Sequence[PaddedOperand]) -> list[Sequence[int]]:
    return list(node.primitive.facing_sizes(node.node_attributes, [v.shape for v in operands]))


def _outcome(
    node: Node, operands: Sequence[PaddedOperand], neutral: Sequence[float]
) -> tuple[PaddedOperand, Mask | None] | None:
    """The output of a node, and the mask that it needs; None if the number of steps gets into it with any mask."""
    primitive, attributes, output = node.primitive, node.node_attributes, node.node_outputs[0]
    steps = [v for v in operands if v.has_steps]
    axes, place = {v.unpacked_axis for v in steps}, _place_in_output(node, operands)
    faces_others = any(FREE in sizes and set(sizes) != {FREE} for sizes in _facing(node, operands))
    if len(axes) > 1 or place is None or faces_others:
        return None
    (axis,) = axes
    for value in (None, *neutral):
        masked = operands if value is None else [
            replace(v, padding=value, is_masked=True) if v.has_steps else v for v in operands
        ]
        mask = None if value is None or axis is None else Mask(value, axis)
        if place == IN_NONE:
            if primitive.ignores_padding(attributes, masked):
                return PaddedOperand(output, None), mask
        elif (padding := primitive.padding_value(attributes, masked)) is not None:
            return PaddedOperand(output, padding, axis, place=place), mask
    return None


def _place_in_output(node: Node, operands: Sequence[PaddedOperand]) -> int | None:
    """The axis of the output that holds the steps; None if that is not known."""
    output = node.node_outputs[0].shape
    if FREE not in output:
        return IN_NONE
    if output.count(FREE) == 1 and all(o.variable.shape.count(FREE) <= 1 for o in operands):
        return output.index(FREE) - len(output)
    return node.primitive.place_in_output(node.node_attributes, [o.shape for o in operands])
