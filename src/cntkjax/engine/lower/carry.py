"""Truncated sequences: a later piece continues from the last values of the piece before, in the previous minibatch.

A program takes, for each delay that looks back, the last values of the sequences of the previous minibatch, and returns
those of its own; `Memory` holds them in between. No gradient flows from one minibatch to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._typing import Array
from ...graph.axis import Axis
from ...graph.cells import Cell, Changes
from ...graph.errors import ShapeError, explain
from ...graph.function import Node
from ...graph.streams import Streams
from ..data.dimensions import expand_to, flat, pad_rank
from ..data.layout import Layout
from ..data.ragged import Ragged
from .values import Axes, Context, Traced


class Carried(NamedTuple):
    """The last values of the sequences of a minibatch, for pieces that continue them.

    `last`: for each axis and slot the last of the sequences in it.
    Shapes: values [offset, sequences, *shape] for each delay, the last value first.
    """

    values: Mapping[Node, Array] = {}
    last: Mapping[Axis, Mapping[int, int]] = {}


class Memory:
    """What a function, or a trainer, carries over to its next minibatch: the last values of the sequences, and where
    its random numbers go on.
    """

    def __init__(self, carried: Carried = Carried(), streams: Streams | None = None) -> None:
        self.carried = Cell(carried)
        self.streams = Streams() if streams is None else streams

    @property
    def cells(self) -> list[Cell[Any]]:
        """All that changes."""
        return [self.carried, self.streams.drawn]

    def origin(self, axis: Axis, pieces: Ragged, size: int) -> np.ndarray:
        """For each piece the sequence that it continues, -1 if it begins here or is padding. Shapes: int32 [size].

        Errors: RuntimeError if a piece continues a sequence, but there was none in its slot.
        """
        assert pieces.starts is not None
        origin = np.full(size, -1, np.int32)
        last = self.carried.value.last.get(axis, {})
        slots = slots_of(pieces)
        for i in np.flatnonzero(~pieces.starts):
            if int(slots[i]) not in last:
                raise RuntimeError(explain(
                    f"sequence {i} of the minibatch continues one of the minibatch before, which had none in its slot",
                    fix="feed the pieces of a sequence to the same function, one minibatch after the other, "
                        "each with start flags, the first with True",
                ))
            origin[i] = last[int(slots[i])]
        return origin

    def after(
        self, delays: Sequence[Node], values: Sequence[Array | None], slots: Mapping[Axis, np.ndarray]
    ) -> Changes:
        """What changes when a program has returned these values for its delays, if its minibatch held pieces.

        Shapes: values [offset, sequences, *shape]; slots int [sequences].
        """
        if not slots:
            return {}
        return {self.carried: Carried(
            {n: v for n, v in zip(delays, values, strict=True) if v is not None},
            {axis: {int(slot): i for i, slot in enumerate(used)} for axis, used in slots.items()},
        )}

    def copy(self) -> Memory:
        """The state now, unaffected by later minibatches."""
        return Memory(self.carried.value, self.streams.copy())


def memory_of(function: Node) -> Memory:
    """What a function carries over from one evaluation to the next."""
    memory: Memory | None = function.__dict__.get("_carried")
    return function.__dict__.setdefault("_carried", Memory()) if memory is None else memory


def slots_of(pieces: Ragged) -> np.ndarray:
    """The slot of each piece; unless a reader has set it, its place in the minibatch. Shapes: int [sequences]."""
    return np.arange(pieces.num_sequences) if pieces.slots is None else pieces.slots


def carried_into(ctx: Context, delay: Node, shape: tuple[int, ...]) -> Array | None:
    """The last values of a delay in the minibatch before, if sequences of this one continue it.

    Shapes: shape: of a value of the delay in this minibatch -> [offset, sequences, *shape].
    Errors: ShapeError if free dimensions had other sizes then.
    """
    carried_in = ctx.carried_in.get(delay)
    if carried_in is not None and carried_in.shape[2:] != shape:
        raise ShapeError(explain(
            f"{delay.op_name}: sequences of shape {list(shape)} continue some of shape {list(carried_in.shape[2:])} of "
            "the minibatch before",
            {"operand": delay.node_inputs[0]},
            "feed all pieces of a sequence with free dimensions of the same sizes",
        ))
    return carried_in


def states_before(
    layout: Layout, carried_in: Array | None, offset: int, seq: Array, position: Array, initial: Array
) -> Array:
    """The values of a delay before a sequence: the initial state, or those of the piece that it continues.

    Shapes: carried_in [offset, sequences, *shape]; seq, position [*cells]; initial [*cells, *shape] or [*shape]
            -> [*cells, *shape].
    """
    if carried_in is None:
        return initial
    assert layout.origin is not None
    origin = layout.origin[seq]
    before = carried_in[jnp.clip(offset - 1 - position, 0, offset - 1), jnp.maximum(origin, 0)]
    return jnp.where(expand_to(origin >= 0, before.ndim), before, initial)


def initial_states(ctx: Context, initial: Traced, axes: Axes, offset: int, ahead: bool) -> Traced:
    """Initial states at the steps that read them: of a sequence its last (looking ahead: first) `offset` steps.

    Shapes: [*shape] stays; [batch, *shape], and [time, rows, *shape] of a sequence -> [time, rows, *shape].
    """
    if ctx.sequence_axis(initial.axes) is None:
        return ctx.to_axes(initial, axes)
    source, layout = ctx.layout(initial.axes), ctx.layout(axes)
    length = source.length[layout.seq]
    step = offset - 1 - layout.remaining if ahead else length - offset + layout.position
    cells = (source.start[layout.seq] + jnp.clip(step, 0, length - 1)) * source.rows + source.row[layout.seq]
    data = ctx.array(initial)
    return Traced(flat(data)[cells], axes)


def carry_out(ctx: Context, delay: Node, data: Array, initial: Traced) -> None:
    """Save the last `offset` values of each sequence in the context, if any may continue in the next minibatch.

    Shapes: data [time, rows, *shape]: the operand of the delay; the initial state as `initial_states` returns it.
    """
    layout, offset = ctx.layout(delay.node_outputs[0].dynamic_axes), delay.node_attributes["offset"]
    if layout.origin is None or delay.primitive.delay > 0:
        return
    back = jnp.arange(1, offset + 1)[:, None]
    last, first = layout.at(data, layout.length - back), initial.data
    position = offset - back + layout.length  # of the steps before this piece, if it is shorter than the delay
    if initial.axes:
        first = pad_rank(layout.at(first, position), 2, last.ndim)
    seq = jnp.broadcast_to(jnp.arange(layout.size), position.shape)
    before = states_before(layout, ctx.carried_in.get(delay), offset, seq, position, first)
    is_inside = expand_to(layout.length >= back, last.ndim)
    ctx.carried_out[delay] = jnp.where(is_inside, last, before).astype(data.dtype)


__all__ = ["Carried", "Memory", "carried_into", "carry_out", "initial_states", "memory_of", "slots_of", "states_before"]
