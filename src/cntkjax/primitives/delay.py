"""Delayed values: what closes recurrent loops, and shifts sequences outside of them."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..engine.lower.carry import entering, initial_states, leave
from ..engine.lower.values import Context, Value
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, explain
from ..graph.shape import UNKNOWN_SHAPE, broadcast, is_unknown
from ..graph.variable import Variable
from .base import Attrs, Primitive, Size, primitive
from .elementwise import fill_inferred


class Delay(Primitive):
    """The value of `offset` steps ago (or ahead); the initial state where the sequence does not reach so far.

    Shapes: x [*shape] with a sequence axis, initial state broadcastable to it: one for all, one a sequence, or a
            sequence, the `offset` last (looking ahead: first) steps of which stand where x does not reach.
    Source: CNTK 2.7.
    """

    attributes = {"offset": Size(1)}
    packed = True
    infers_partially = True
    dtype_operands = slice(0, 1)  # the default initial state is there before the type of the value is known

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """The shape of the operand, or of the initial state if that is larger."""
        x, initial = inputs
        # A generator has the type of its first state, unless that may be a number, which has none of its own.
        dtype = x.dtype or (None if initial.dtype is np.float32 else initial.dtype)
        if is_unknown(x.shape):
            axes = x.dynamic_axes if x.dynamic_axes != UNKNOWN_AXES else UNKNOWN_AXES
            return Spec(UNKNOWN_SHAPE, dtype, axes)
        shape = broadcast([x.shape, initial.shape])
        if shape is None:
            raise AxisError(explain(
                f"{self.name}: the initial state does not broadcast to the delayed value",
                {"value": x, "initial": initial},
            ))
        fill_inferred(shape, [initial])
        own = initial.sequence_axis in (None, x.sequence_axis)  # otherwise its last or first steps stand before x
        axes = merged_axes(self.name, [v for v in inputs if v.dynamic_axes]) if own else x.dynamic_axes
        if axes != UNKNOWN_AXES and not any(a.is_sequence_axis for a in axes):
            raise AxisError(explain(
                f"{self.name}: the operand has no sequence axis, so it has no steps to look at", {"value": x},
                "declare the input with cntk.sequence.input_variable",
            ))
        return Spec(shape, dtype, axes)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value, initial: Value) -> Value:
        """A shift along time, and a choice at the ends of sequences. (In loops the scan does it.)"""
        k = attrs["offset"]
        layout = ctx.layout(x.axes)
        data = ctx.array(x)
        initial = ctx.canonical(initial_states(ctx, initial, x.axes, k, ahead=self.delay > 0))
        missing = max(initial.data.ndim - (2 if initial.axes else 0) - (data.ndim - 2), 0)
        data = data.reshape(*data.shape[:2], *(1,) * missing, *data.shape[2:])
        far = layout.position if self.delay < 0 else layout.remaining
        first = initial.data.astype(data.dtype)
        alike = not initial.axes and broadcast([first.shape, data.shape]) == data.shape
        same = alike and self.delay < 0 and layout.simple  # sequences begin in the first cells
        pad = jnp.broadcast_to(first if same else 0, (min(k, layout.time), *data.shape[1:])).astype(data.dtype)
        shifted = jnp.concatenate([pad, data[:-k]] if self.delay < 0 else [data[k:], pad])
        assert ctx.node is not None
        carried = ctx.carried.get(ctx.node)
        leave(ctx, ctx.node, data, initial)
        if same and carried is None:
            return Value(shifted, x.axes)
        start = first
        if initial.axes:
            start = start.reshape(*start.shape[:2], *(1,) * (data.ndim - start.ndim), *start.shape[2:])
        start = entering(layout, carried, k, layout.seq, layout.position, start)
        begins = (far < k).reshape(*far.shape, *(1,) * (data.ndim - 2))
        return Value(jnp.where(begins, start, shifted), x.axes)


@primitive("PastValue", 37)
class PastValue(Delay):
    """The value of `offset` steps ago."""

    delay = -1
    stepwise = True


@primitive("FutureValue", 38)
class FutureValue(Delay):
    """The value `offset` steps ahead."""

    delay = 1
