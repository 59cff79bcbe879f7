"""Recurrent networks for a few sequences of one length, computed by the library in C (`engine.native`).

XLA's loops call a library for each product of each step, which reads weights that are not packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.function import Node
from ...graph.variable import Edge, producer
from ..native.library import library
from ..native.program import Packed
from ..plan.parts import Loop, nodes_of, resolve
from ..plan.plan import Plan
from ..xla.platform import platform
from .few_rows import MOST_ROWS, Call, NativePart, constant_nodes, constant_steps, native_operation, with_steps

MOST_STEPS = 1024  # of a sequence: what each node computes is kept for all of them
_MOST_LENGTHS = 256


class FewSequences:
    """The outputs of a plan for sequences of one length, with values of its leaves that stay. Threads may share it.

    Arguments are sequences of vectors, dense or one-hot, and dense vectors.
    """

    def __init__(self, plan: Plan, leaves: Sequence[Any], packed: Packed) -> None:
        self._plan, self._packed = plan, packed
        self._inputs = _inputs(plan)
        self._native = _native_part(plan, self._inputs)
        steps = constant_steps(plan) if self._native else None
        self._constants = with_steps([*map(np.asarray, leaves)], steps or ())
        self._calls: dict[tuple[int, int], Call] = {}

    def __call__(self, feeds: Sequence[Any]) -> list[Any] | None:
        """The outputs, in the form of `Result.numpy`, for the feed of each argument; None if XLA is to compute them."""
        sizes = None if self._native is None else _sizes(feeds)
        if sizes is None or (arrays := self._arrays(feeds)) is None:
            return None
        call = self._calls.get(sizes)
        if call is None:
            assert self._native is not None
            call = self._native.program(self._constants, self._packed, *sizes)
            if len(self._calls) < _MOST_LENGTHS:
                self._calls[sizes] = call
        values = zip(self._plan.outputs, call(arrays), strict=True)
        return [[*array] if v.sequence_axis else array for v, array in values]

    def _arrays(self, feeds: Sequence[Any]) -> list[Any] | None:
        """The numbers that the library reads."""
        arrays = []
        for argument, weight in self._inputs.values():
            data = feeds[argument].data
            if weight is not None:
                if not data.is_one_hot:
                    return None
                data = self._constants[weight][data.indices]
            if data.dtype != np.float32:
                return None
            arrays.append(np.ascontiguousarray(data))
        return arrays


def _sizes(feeds: Sequence[Any]) -> tuple[int, int] | None:
    """How many sequences there are, and their length; None if these differ, or there are many."""
    sizes = set()
    for feed in feeds:
        if feed.starts is not None:
            return None
        samples, lengths = feed.num_sequences, feed.lengths
        length = 0 if lengths is None or not samples else int(lengths[0])
        if samples > MOST_ROWS or length > MOST_STEPS or (samples > 1 and length and (lengths != length).any()):
            return None
        if lengths is not None:
            sizes.add((samples, length))
    samples, length = sizes.pop()
    return (samples, length) if length and not sizes and all(f.num_sequences == samples for f in feeds) else None


def _inputs(plan: Plan) -> dict[Edge, tuple[int, int | None]]:
    """What is fed to the library: arguments, by their places, and products of sparse ones with constants.

    The second number is the place of the constant whose rows such a product selects, if the data are one-hot.
    """
    places, constants = {v: i for i, v in enumerate(plan.arguments)}, _constants(plan)
    inputs: dict[Edge, tuple[int, int | None]] = {v: (i, None) for v, i in places.items() if not v.is_sparse}
    for node in plan.nodes:
        if node.primitive.looks_up_rows(node):
            left, right = map(resolve, node.node_inputs)
            if left in places and left.is_sparse and right in constants and len(right.shape) == 2:
                inputs[node.node_outputs[0]] = places[left], constants[right]
    return inputs


def _constants(plan: Plan) -> dict[Edge, int]:
    """The places of leaves, and of what follows from them alone."""
    fixed, _ = constant_nodes(plan)
    return {v: i for i, v in enumerate([*plan.leaves, *(node.node_outputs[0] for node in fixed)])}


def _native_part(plan: Plan, inputs: Mapping[Edge, Any]) -> NativePart | None:
    """All that follows from the inputs; None if the library does not compute all of it."""
    if library() is None or platform() != "cpu" or len({*plan.outputs}) < len(plan.outputs):
        return None
    if not plan.is_divisible or not plan.only_computes or constant_steps(plan) is None:
        return None
    axes = {v.sequence_axis for v in inputs if v.sequence_axis is not None}
    if len(axes) != 1 or not all(v.dtype is np.float32 and v.dynamic_axes and len(v.shape) == 1 for v in inputs):
        return None
    _, varying = constant_nodes(plan)
    computed = [node for node in varying if node.node_outputs[0] not in inputs]
    operations = {node: operation for node in computed if (operation := native_operation(node)) is not None}
    if len(operations) < len(computed) or not _reads_only_inputs(plan, computed, inputs):
        return None
    for node, operation in operations.items():
        edges = [*map(resolve, node.node_inputs), *node.node_outputs]
        steps = [v for v in edges if v.sequence_axis]
        if not all(len(v.shape) == 1 and v.sequence_axis in axes for v in steps) or (steps and not operation.of_steps):
            return None
        if node.node_outputs[0].sequence_axis and any(v.dynamic_axes and not v.sequence_axis for v in edges):
            return None
    if not all(map(_is_simple, (part for part in plan.parts if isinstance(part, Loop)))):
        return None
    if any(producer(v) is None or v in inputs or not v.dynamic_axes for v in plan.outputs):
        return None
    parts = [part for part in plan.parts if nodes_of(part)[0] in operations]
    return NativePart(operations, parts, [*inputs], _constants(plan), plan.outputs)


def _reads_only_inputs(plan: Plan, nodes: Sequence[Node], inputs: Mapping[Edge, Any]) -> bool:
    """True if these nodes read no argument but through inputs, and each argument is read."""
    read = {resolve(v) for node in nodes for v in node.node_inputs}
    return read.isdisjoint(v for v in plan.arguments if v not in inputs) and read.issuperset(inputs)


def _is_simple(loop: Loop) -> bool:
    """True if each of its delays reads another node of it."""
    read = {resolve(delay.node_inputs[0]) for delay in loop.delays}
    computed = {node.node_outputs[0] for node in loop.nodes}
    return not loop.fused_parts and len(read) == len(loop.delays) and read <= computed


__all__ = ["FewSequences"]
