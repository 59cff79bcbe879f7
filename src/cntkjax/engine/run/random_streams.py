"""Random numbers of a plan's nodes for one evaluation.

Most nodes get a seed and an offset, from which the program generates as many numbers as it needs. Nodes of which the
host knows how many numbers they need, and from what distribution, get the very numbers that CNTK draws on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ..._typing import AnyArray
from ...graph.function import Function
from ...graph.mersenne import MersenneTwister64
from ...graph.variable import Leaf, value_of
from ..plan.parts import resolve
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


RandomState: TypeAlias = Mapping[Function, NodeRandomState]


def draw_random_state(plan: Plan, advance: bool = True) -> RandomState:
    """The next random state of a plan's nodes; with `advance`, their offsets move on."""
    states: dict[Function, NodeRandomState] = {}
    for node in plan.random:
        attrs = node.node_attributes
        seed, offset = attrs["rngSeed"], attrs.get("rngOffset", 0)
        stream = _stream_of(node, seed, offset) if node.primitive.draws_on_host(node) else None
        end = offset + node.primitive.offset_increment(attrs) if stream is None else stream.end
        states[node] = NodeRandomState(seed, offset, None if stream is None else stream.numbers, end)
    if advance:
        advance_random_state(states)
    return states


def advance_random_state(states: RandomState) -> None:
    """Move the offsets of nodes on, past what was drawn; it may be repeated."""
    for node, state in states.items():
        node.node_attributes["rngOffset"] = state.end


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


class _Stream:
    """The generator of a node: `numbers` were drawn at the offset `begin`, and the next ones are at `end`."""

    def __init__(self, seed: int, offset: int) -> None:
        self.seed, self.begin, self.end = seed, offset, offset
        self.generator = MersenneTwister64(seed)
        self.generator.skip(offset)
        self.numbers: AnyArray | None = None
        self.weights: AnyArray | None = None  # from which the numbers were drawn

    def serves(self, seed: int, offset: int, weights: AnyArray | None) -> bool:
        """True if the numbers at this offset are the next ones, or those drawn last from the same weights."""
        return self.seed == seed and (offset == self.end or (offset == self.begin and weights is self.weights))


_STREAMS: WeakKeyDictionary[Function, _Stream] = WeakKeyDictionary()


def _stream_of(node: Function, seed: int, offset: int) -> _Stream:
    """The stream of a node after drawing its numbers at this offset."""
    stream = _STREAMS.pop(node, None)  # put back below: what an interrupt leaves half drawn is drawn again
    leaf = resolve(node.node_inputs[0]) if node.node_inputs else None
    weights = value_of(leaf) if isinstance(leaf, Leaf) else None
    if stream is None or not stream.serves(seed, offset, weights):
        stream = _Stream(seed, offset)
    is_new = stream.numbers is None or weights is not stream.weights
    if is_new or (offset == stream.end and not node.primitive.keeps_numbers):
        numbers, count = node.primitive.draw(node.node_attributes, stream.generator, weights)
        stream.numbers, stream.weights, stream.begin, stream.end = numbers, weights, offset, offset + count
    _STREAMS[node] = stream
    return stream


__all__ = [
    "NodeRandomState", "RandomInputs", "RandomState", "advance_random_state", "draw_random_state", "random_inputs",
    "random_state_of",
]
