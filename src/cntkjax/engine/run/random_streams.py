"""What the nodes of a plan that draw random numbers get for one evaluation.

Most get a seed and an offset, from which the program makes as many numbers as it needs. Those of which it is known how
many they need, and from what, get the very numbers that CNTK draws on a CPU; the host draws them.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ...graph.function import Function
from ...graph.mersenne import MersenneTwister64
from ...graph.variable import Leaf
from ..plan.parts import resolve
from ..plan.plan import Plan


class RandomInputs(NamedTuple):
    """Operands of a program: seeds and offsets ``[nodes, 2]`` of all nodes, and what was drawn for some, by place."""

    keys: Any
    numbers: dict[int, Any]


RandomState: TypeAlias = Mapping[Function, tuple[int, int, Any]]
"""Seed, offset and, if the host draws for the node, its numbers."""


def draw_random_state(plan: Plan, advance: bool = True) -> RandomState:
    """What the nodes draw next; with ``advance`` the offsets count on."""
    drawn: dict[Function, tuple[int, int, Any]] = {}
    for node in plan.random:
        attrs = node.node_attributes
        seed, offset = attrs["rngSeed"], attrs.get("rngOffset", 0)
        stream = _stream_of(node, seed, offset) if node.primitive.draws_on_host(node) else None
        drawn[node] = seed, offset, None if stream is None else stream.numbers
        if advance:
            attrs["rngOffset"] = offset + node.primitive.offset_increment(attrs) if stream is None else stream.end
    return drawn


def random_state_of(plan: Plan, numbers: RandomInputs | None) -> RandomState:
    """What was drawn, from what a program of the plan was given."""
    if numbers is None:
        return {}
    seeds = ((int(seed), int(offset)) for seed, offset in numbers.keys)
    return {node: (*key, numbers.numbers.get(i)) for i, (node, key) in enumerate(zip(plan.random, seeds, strict=True))}


def random_inputs(plan: Plan, advance: bool = True, again: RandomState | None = None) -> RandomInputs | None:
    """What a program of the plan takes; ``again``: as it was drawn before, for this graph or one that has it in it."""
    if not plan.random:
        return None
    drawn = draw_random_state(plan, advance) if again is None else again
    each = [drawn[node] for node in plan.random]
    keys = np.array([(seed % 2**32, offset % 2**32) for seed, offset, _ in each], np.uint32)
    return RandomInputs(keys, {i: numbers for i, (*_, numbers) in enumerate(each) if numbers is not None})


class _Stream:
    """Where the generator of a node stands: ``numbers`` were drawn at ``begin``, and the next ones are at ``end``."""

    def __init__(self, seed: int, offset: int) -> None:
        self.seed, self.begin, self.end = seed, offset, offset
        self.generator = MersenneTwister64(seed)
        self.generator.skip(offset)
        self.numbers: Any = None
        self.weights: Any = None

    def is_at(self, seed: int, offset: int) -> bool:
        return self.seed == seed and offset in (self.begin, self.end)


_STREAMS: WeakKeyDictionary[Function, _Stream] = WeakKeyDictionary()


def _stream_of(node: Function, seed: int, offset: int) -> _Stream:
    """The stream of a node, with the numbers that belong to this offset drawn."""
    stream = _STREAMS.get(node)
    if stream is None or not stream.is_at(seed, offset):
        stream = _STREAMS[node] = _Stream(seed, offset)
    leaf = resolve(node.node_inputs[0]) if node.node_inputs else None
    weights = leaf._value if isinstance(leaf, Leaf) else None
    is_new = stream.numbers is None or weights is not stream.weights
    if is_new or (offset == stream.end and not node.primitive.keeps_numbers):
        made, used = node.primitive.draw(node.node_attributes, stream.generator, weights)
        stream.numbers, stream.weights, stream.begin, stream.end = made, weights, offset, offset + used
    return stream


__all__ = ["RandomInputs", "RandomState", "draw_random_state", "random_inputs", "random_state_of"]
