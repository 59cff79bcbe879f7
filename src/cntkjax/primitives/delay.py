"""Delayed values: they close recurrent loops, and shift sequences outside of loops."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from ..engine.data.dimensions import expand_to, pad_rank
from ..engine.lower.carry import carried_into, carry_out, initial_states, states_before
from ..engine.lower.values import Context, Traced
from ..engine.native.program import Operation
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, explain
from ..graph.function import Node
from ..graph.shape import UNKNOWN_SHAPE, broadcast, is_unknown
from ..graph.variable import Edge
from .base import Attrs, Primitive, Size, primitive
from .elementwise import fill_inferred


class Delay(Primitive):
    """The value `offset` steps ago (or ahead); the initial state where the sequence does not reach that far.

    Shapes: x [*shape] with a sequence axis; an initial state that broadcasts to it: one for all sequences, one for
            each, or a sequence, whose last (looking ahead: first) `offset` steps are used where x does not reach.
    Errors: AxisError if x has no sequence axis, or if the initial state does not broadcast to it.
    Source: CNTK 2.7.
    """

    attributes = {"offset": Size(1)}
    packed = True
    infers_partially = True
    dtype_operands = slice(0, 1)  # a number as initial state is there before the type of the value is known

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the operand, or of the initial state if that is larger."""
        x, initial = inputs
        if is_unknown(x.shape):
            return Spec(UNKNOWN_SHAPE, axes=x.dynamic_axes)
        shape = broadcast([x.shape, initial.shape])
        if shape is None:
            raise AxisError(explain(
                f"{self.name}: the initial state does not broadcast to the delayed value",
                {"value": x, "initial": initial},
                "give a number, or an initial state whose dimensions, counted from the last, are equal or 1",
            ))
        fill_inferred(shape, [initial])
        axes = x.dynamic_axes
        if axes == UNKNOWN_AXES:  # of a loop, whose other operands give them: an initial state may lack the steps
            return Spec(shape, axes=axes)
        if initial.sequence_axis in (None, x.sequence_axis):  # it may be a sequence of its own, along another axis
            axes = merged_axes(self.name, [v for v in inputs if v.dynamic_axes])
        if axes != UNKNOWN_AXES and not any(a.is_sequence_axis for a in axes):
            raise AxisError(explain(
                f"{self.name}: the operand has no sequence axis, so it has no steps to delay", {"value": x},
                "declare the input with cntk.sequence.input_variable",
            ))
        return Spec(shape, axes=axes)

    def by_steps(self, node: Node) -> Operation | None:
        """Of vectors, with one initial state for all sequences."""
        (x, initial), steps = node.node_inputs, -self.delay * node.node_attributes["offset"]
        if len(x.shape) != 1 or initial.dynamic_axes or initial.shape not in ((), (1,), x.shape):
            return None
        border = (0, 0, max(steps, 0), max(-steps, 0))
        return Operation(lambda writer, value, state: writer.delayed(value, steps, state), border, of_steps=True)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, initial: Traced) -> Traced:
        """A shift along time, and a selection at the ends of sequences. (In loops the scan does it.)"""
        k = attrs["offset"]
        layout = ctx.layout(x.axes)
        data = ctx.array(x)
        initial = ctx.canonical(initial_states(ctx, initial, x.axes, k, ahead=self.delay > 0))
        data = pad_rank(data, 2, initial.data.ndim + (0 if initial.axes else 2))
        distance = layout.position if self.delay < 0 else layout.remaining
        state = initial.data.astype(data.dtype)
        is_uniform = not initial.axes and broadcast([state.shape, data.shape]) == data.shape
        fills_first_cells = is_uniform and self.delay < 0 and layout.simple  # where all sequences begin
        pad = jnp.broadcast_to(state if fills_first_cells else 0, (min(k, layout.time), *data.shape[1:]))
        pad = pad.astype(data.dtype)
        shifted = jnp.concatenate([pad, data[: layout.time - len(pad)]] if self.delay < 0 else [data[k:], pad])
        assert ctx.node is not None
        shape = jnp.broadcast_shapes(data.shape[2:], state.shape[2:] if initial.axes else state.shape)
        carried_in = carried_into(ctx, ctx.node, shape)
        carry_out(ctx, ctx.node, data, initial)
        if fills_first_cells and carried_in is None:
            return Traced(shifted, x.axes)
        if initial.axes:
            state = pad_rank(state, 2, data.ndim)
        state = states_before(layout, carried_in, k, layout.seq, layout.position, state)
        uses_state = expand_to(distance < k, data.ndim)
        return Traced(jnp.where(uses_state, state, shifted), x.axes)


@primitive("PastValue", 37)
class PastValue(Delay):
    """The value of `offset` steps ago."""

    delay = -1
    stepwise = True


@primitive("FutureValue", 38)
class FutureValue(Delay):
    """The value `offset` steps ahead."""

    delay = 1
