"""Sequences that are cut between minibatches: a later piece goes on with the values with which the one before ended.

A program takes, for each delay that looks back, the last values of the sequences of the minibatch before, and gives
those of its own; `Memory` keeps them in between. No gradient flows from one minibatch to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...graph.axis import Axis
from ...graph.errors import explain
from ...graph.function import Function
from ..data.layout import Layout
from ..data.ragged import Ragged
from .values import Axes, Context, Value


@dataclass
class Memory:
    """What the last minibatch left behind for pieces that go on in the next.

    Shapes: values hold [offset, sequences, *shape] for a delay, the last value first; `last` tells for an axis which of
            these sequences was the last one in a slot.
    """

    values: Mapping[Function, Any] = field(default_factory=dict)
    last: Mapping[Axis, Mapping[int, int]] = field(default_factory=dict)

    def origin(self, axis: Axis, pieces: Ragged, size: int) -> np.ndarray:
        """For each piece the sequence that it continues, -1 if it begins here or is padding. Shapes: int32 [size].

        Errors: RuntimeError if nothing stood in the slot of a piece that goes on.
        """
        assert pieces.starts is not None
        origin = np.full(size, -1, np.int32)
        last = self.last.get(axis, {})
        slots = slots_of(pieces)
        for i in np.flatnonzero(~pieces.starts):
            if int(slots[i]) not in last:
                raise RuntimeError(explain(
                    f"sequence {i} of the minibatch continues one of the minibatch before, but none stood there",
                    fix="feed the pieces of a sequence to the same function, one minibatch after the other, "
                        "each with start flags, the first with True",
                ))
            origin[i] = last[int(slots[i])]
        return origin

    def keep(self, delays: Sequence[Function], left: Sequence[Any], slots: Mapping[Axis, np.ndarray]) -> None:
        """Remember what a program left behind, if its minibatch held pieces."""
        if slots:
            self.values = {n: v for n, v in zip(delays, left, strict=True) if v is not None}
            self.last = {axis: {int(slot): i for i, slot in enumerate(of_each)} for axis, of_each in slots.items()}

    def copy(self) -> Memory:
        """What is remembered now."""
        return Memory(self.values, self.last)


def slots_of(pieces: Ragged) -> np.ndarray:
    """The slot of each piece: without a reader that says it, its place in the minibatch."""
    return np.arange(pieces.num_sequences) if pieces.slots is None else pieces.slots


def entering(layout: Layout, carried: Any, offset: int, seq: Any, position: Any, initial: Any) -> Any:
    """What stands before the first steps: the initial state, or where a piece goes on, the values of the one before.

    Shapes: seq, position [*cells]; initial [*cells, *shape] or [*shape] -> [*cells, *shape].
    """
    if carried is None:
        return initial
    assert layout.origin is not None
    origin = layout.origin[seq]
    before = carried[jnp.clip(offset - 1 - position, 0, offset - 1), jnp.maximum(origin, 0)]
    return jnp.where((origin >= 0).reshape(*origin.shape, *(1,) * (before.ndim - origin.ndim)), before, initial)


def initial_states(ctx: Context, initial: Value, axes: Axes, offset: int, ahead: bool) -> Value:
    """Initial states at the steps that read them: of a sequence its last (looking ahead: first) `offset` steps."""
    if ctx.sequence_axis(initial.axes) is None:
        return ctx.to_axes(initial, axes)
    source, layout = ctx.layout(initial.axes), ctx.layout(axes)
    length = source.length[layout.seq]
    step = offset - 1 - layout.remaining if ahead else length - offset + layout.position
    cells = (source.start[layout.seq] + jnp.clip(step, 0, length - 1)) * source.rows + source.row[layout.seq]
    data = ctx.array(initial)
    return Value(data.reshape(-1, *data.shape[2:])[cells], axes)


def leave(ctx: Context, delay: Function, data: Any, initial: Value) -> None:
    """Hand over the last `offset` values of each sequence, if any may go on in the next minibatch.

    Shapes: data [time, rows, *shape]: what is delayed; the initial state as `loops.initial_states` gives it.
    """
    layout, offset = ctx.layout(delay.node_outputs[0].dynamic_axes), delay.node_attributes["offset"]
    if layout.origin is None or delay.primitive.delay > 0:
        return
    back = jnp.arange(1, offset + 1)[:, None]
    own, first = layout.at(data, layout.length - back), initial.data
    position = offset - back + layout.length  # of the steps before this piece, if it is shorter than the delay
    if initial.axes:
        first = layout.at(first, position)
        first = first.reshape(*first.shape[:2], *(1,) * (own.ndim - first.ndim), *first.shape[2:])
    seq = jnp.broadcast_to(jnp.arange(layout.size), position.shape)
    before = entering(layout, ctx.carried.get(delay), offset, seq, position, first)
    reaches = (layout.length >= back).reshape(*position.shape, *(1,) * (own.ndim - 2))
    ctx.left[delay] = jnp.where(reaches, own, before).astype(data.dtype)
