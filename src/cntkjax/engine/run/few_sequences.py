"""Recurrent networks for a few sequences of one length, computed by the library in C (`engine.native`).

XLA's loops call a library for each product of each step, which reads weights that are not packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.variable import Edge, producer
from ..data.ragged import Ragged, SparseRows
from ..native.library import library
from ..native.program import Packed
from ..plan.parts import Loop, nodes_of, resolve
from ..plan.plan import Plan
from ..xla.platform import platform
from .few_rows import MOST_ROWS, Call, NativePart, constant_nodes, constant_steps, native_operation

MOST_STEPS = 1024  # of a sequence: what each node computes is kept for all of them
_MOST_LENGTHS = 256


class FewSequences:
    """The outputs of a plan for sequences of one length, with values of its leaves that stay. Threads may share it."""

    def __init__(self, plan: Plan, leaves: Sequence[Any], packed: Packed) -> None:
        self._outputs, self._packed = plan.outputs, packed
        self._native, constants = _native_part(plan), [*map(np.asarray, leaves)]
        with np.errstate(all="ignore"):
            for step in constant_steps(plan) or () if self._native else ():
                constants.append(step(constants))
        self._constants = constants
        self._calls: dict[tuple[int, int], Call] = {}

    def __call__(self, feeds: Sequence[Any]) -> list[Any] | None:
        """The outputs for one array of sequences, in the form of `Result.numpy`; None if XLA is to compute them."""
        if self._native is None or not isinstance(feed := feeds[0], Ragged) or isinstance(feed.data, SparseRows):
            return None
        if feed.lengths is None or feed.starts is not None or feed.data.dtype != np.float32:
            return None
        samples, length = len(feed.lengths), int(feed.lengths[0]) if len(feed.lengths) else 0
        if not 0 < length <= MOST_STEPS or samples > MOST_ROWS or (samples > 1 and (feed.lengths != length).any()):
            return None
        call = self._calls.get((samples, length))
        if call is None:
            call = self._native.program(self._constants, self._packed, samples, length)
            if len(self._calls) < _MOST_LENGTHS:
                self._calls[samples, length] = call
        arrays = zip(self._outputs, call(np.ascontiguousarray(feed.data)), strict=True)
        return [[*array] if v.sequence_axis else array for v, array in arrays]


def _native_part(plan: Plan) -> NativePart | None:
    """All that follows from the sequences; None if the library does not compute all of it."""
    if library() is None or platform() != "cpu" or len(plan.arguments) != 1 or len({*plan.outputs}) < len(plan.outputs):
        return None
    if not plan.is_divisible or not plan.only_computes or constant_steps(plan) is None:
        return None
    (argument,), (fixed, varying) = plan.arguments, constant_nodes(plan)
    operations = {node: operation for node in varying if (operation := native_operation(node)) is not None}
    if len(operations) < len(varying) or not _is_sequence(argument) or argument.is_sparse:
        return None
    axis = argument.sequence_axis
    for node, operation in operations.items():
        edges = [*map(resolve, node.node_inputs), *node.node_outputs]
        steps = [v for v in edges if v.sequence_axis]
        if not all(_is_sequence(v) and v.sequence_axis == axis for v in steps) or (steps and not operation.of_steps):
            return None
    if not all(map(_is_simple, (part for part in plan.parts if isinstance(part, Loop)))):
        return None
    if any(producer(v) is None or not v.dynamic_axes for v in plan.outputs):
        return None
    places = {v: i for i, v in enumerate([*plan.leaves, *(node.node_outputs[0] for node in fixed)])}
    parts = [part for part in plan.parts if nodes_of(part)[0] in operations]
    return NativePart(operations, parts, argument, places, plan.outputs)


def _is_sequence(v: Edge) -> bool:
    """True for sequences of vectors."""
    return v.sequence_axis is not None and len(v.shape) == 1


def _is_simple(loop: Loop) -> bool:
    """True if each of its delays reads another node of it."""
    read = {resolve(delay.node_inputs[0]) for delay in loop.delays}
    computed = {node.node_outputs[0] for node in loop.nodes}
    return not loop.fused_parts and len(read) == len(loop.delays) and read <= computed


__all__ = ["FewSequences"]
