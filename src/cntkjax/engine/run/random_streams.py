"""Random numbers of a plan's nodes for one evaluation.

Most nodes get a seed and an offset, from which the program generates as many numbers as it needs. Nodes of which the
host knows how many numbers they need, and from what distribution, get the very numbers that CNTK draws on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from ..._typing import AnyArray
from ...graph.cells import Changes
from ...graph.function import Node
from ...graph.mersenne import MersenneTwister64
from ...graph.streams import StreamPlace, Streams
from ...graph.variable import value_of
from ..plan.parts import constant_elements
from ..plan.plan import Plan


class RandomInputs(NamedTuple):
    """Inputs of a program.

    Shapes: keys, the seed and offset of each node, are uint32 [nodes, 2]; numbers holds what the host drew, by the
            place of the node.
    """

    keys: AnyArray
    numbers: dict[int, AnyArray]


class NodeRandomState(NamedTuple):
    """Seed and offset of a node, its numbers if the host draws them, and the offset of the next ones."""

    seed: int
    offset: int
    numbers: AnyArray | None
    end: int = 0


RandomState: TypeAlias = Mapping[Node, NodeRandomState]


def draw_random_state(plan: Plan, streams: Streams, training: bool) -> RandomState:
    """The next random state of a plan's nodes. The streams stay where they are; see `after_drawing`."""
    states: dict[Node, NodeRandomState] = {}
    for node in plan.random:
        place = streams.place(node, training)
        drawn = _drawn(node, place, streams.generators) if node.primitive.draws_on_host(node) else None
        end = place.offset + node.primitive.offset_increment(node.node_attributes) if drawn is None else drawn.end
        states[node] = NodeRandomState(place.seed, place.offset, None if drawn is None else drawn.numbers, end)
    return states


def after_drawing(states: RandomState, streams: Streams, training: bool) -> Changes:
    """What changes when streams move on, past what was drawn."""
    return streams.after({n: StreamPlace(state.seed, state.end, n.seedings) for n, state in states.items()}, training)


def random_inputs(plan: Plan, states: RandomState) -> RandomInputs | None:
    """The random inputs of a plan's program; None if the plan draws no numbers.

    `states`: those that were drawn for this plan, or one that contains it.
    """
    if not plan.random:
        return None
    node_states = [states[node] for node in plan.random]
    keys = np.array([(state.seed % 2**32, state.offset % 2**32) for state in node_states], np.uint32)
    return RandomInputs(keys, {i: s.numbers for i, s in enumerate(node_states) if s.numbers is not None})


def random_state_of(plan: Plan, inputs: RandomInputs | None) -> RandomState:
    """The random state from which the inputs of a program were made."""
    if inputs is None:
        return {}
    return {
        node: NodeRandomState(int(seed), int(offset), inputs.numbers.get(i))
        for i, (node, (seed, offset)) in enumerate(zip(plan.random, inputs.keys, strict=True))
    }


class _Generator:
    """The generator of a node: `numbers` were drawn at the offset `begin`, and the next ones are at `end`."""

    def __init__(self, place: StreamPlace) -> None:
        self.seed, self.begin, self.end = place.seed, place.offset, place.offset
        self.twister = MersenneTwister64(place.seed)
        self.twister.skip(place.offset)
        self.numbers: AnyArray | None = None
        self.weights: AnyArray | None = None  # from which the numbers were drawn

    def serves(self, place: StreamPlace, weights: AnyArray | None) -> bool:
        """True if the numbers at this place are the next ones, or those drawn last from the same weights."""
        is_last = place.offset == self.begin and weights is self.weights
        return self.seed == place.seed and (is_last or place.offset == self.end)


def _drawn(node: Node, place: StreamPlace, generators: dict[Node, _Generator]) -> _Generator:
    """The generator of a node after drawing its numbers at this place."""
    generator = generators.pop(node, None)  # put back below: what an interrupt leaves half drawn is drawn again
    leaf = constant_elements(node.node_inputs[0]) if node.node_inputs else None
    weights = None if leaf is None else value_of(leaf)
    if generator is None or not generator.serves(place, weights):
        generator = _Generator(place)
    is_new = generator.numbers is None or weights is not generator.weights
    if is_new or (place.offset == generator.end and not node.primitive.keeps_numbers):
        numbers, count = node.primitive.draw(node.node_attributes, generator.twister, weights)
        begin, end = place.offset, place.offset + count
        generator.numbers, generator.weights, generator.begin, generator.end = numbers, weights, begin, end
    generators[node] = generator
    return generator


__all__ = [
    "NodeRandomState", "RandomInputs", "RandomState", "after_drawing", "draw_random_state", "random_inputs",
    "random_state_of",
]
