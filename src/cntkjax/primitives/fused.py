"""Fused primitives: one operation for what CNTK composes of several. Rewrite rules put them into plans."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from .._typing import Array
from ..engine.data.dimensions import expand_to
from ..engine.data.layout import Layout
from ..engine.data.sparse import with_values
from ..engine.lower.values import Context, Traced
from ..engine.native.program import Operation
from ..graph.axis import BATCH
from ..graph.errors import AxisError, explain
from ..graph.function import Node
from ..graph.variable import Edge
from ._maxima import padded, total
from ._window import place
from .base import Attrs, Primitive
from .elementwise import ELEMENTWISE
from .reduce import over_steps
from .sequence import GatherPacked, first_step


class SequenceSoftmax(Primitive):
    """exp(x) / sum(exp(x)) over the steps of each sequence, element by element.

    Shapes: x [*shape] with a sequence axis -> [*shape].
    """

    name = "Sequence::Softmax"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """A softmax along the time axis of the grid, or by segments of its cells."""
        if ctx.step is not None and ctx.sequence_axis(x.axes) == ctx.step.axis:
            assert ctx.node is not None
            raise AxisError(explain(
                f"{self.name}: a recurrent loop cannot use all steps of the sequences that it runs along",
                {"operand": ctx.node.node_inputs[0]},
                "take the softmax outside of the loop, or let only delayed values close the loop",
            ))
        return Traced(_softmax(ctx.array(x), ctx.layout(x.axes)), x.axes)


@jax.custom_vjp
def _softmax(x: Array, layout: Layout) -> Array:
    """[time, rows, *shape]. Padding holds something finite."""
    shifted = x - layout.spread(over_steps("Max", x, layout))
    powers = jnp.exp(shifted if layout.full else jnp.minimum(shifted, 0))  # padding may exceed the maximum
    # A sum is below 1 only for a sequence without steps, one that pads the batch.
    return powers * layout.spread(1 / jnp.maximum(over_steps("Sum", powers, layout), 1))


def _softmax_forward(x: Array, layout: Layout) -> tuple[Array, tuple[Array, Layout]]:
    y = _softmax(x, layout)
    return y, (y, layout)


def _softmax_backward(residuals: tuple[Array, Layout], dy: Array) -> tuple[Array, None]:
    y, layout = residuals
    if not layout.full:  # otherwise padding would get a gradient from the sum
        y = jnp.where(expand_to(layout.mask, y.ndim), y, 0)
    return y * (dy - layout.spread(over_steps("Sum", y * dy, layout))), None


_softmax.defvjp(_softmax_forward, _softmax_backward)


class SequenceFirst(Primitive):
    """The first step of each sequence.

    Operands: the sequence, and a mark, 1 at its first step: a piece that continues a sequence has none.
    Shapes: x [*shape] with a sequence axis, mark [] -> [*shape] with the batch axis alone.
    """

    name = "Sequence::First"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, mark: Traced) -> Traced:
        """A slice of the grid if each row begins with a sequence, otherwise a gather of cells; sparse data stay so."""
        layout = ctx.layout(x.axes)
        step = 0 if layout.origin is None else first_step(layout, (ctx.array(mark) > 0) & layout.mask)
        return _at(ctx, x, step)


class SequenceLast(Primitive):
    """The last step of each sequence.

    Shapes: x [*shape] with a sequence axis -> [*shape] with the batch axis alone.
    """

    name = "Sequence::Last"
    packed = True

    def by_steps(self, node: Node) -> Operation | None:
        """Of vectors."""
        is_vector = len(node.node_inputs[0].shape) == 1
        return Operation(lambda writer, x: writer.at_step(x, -1), of_steps=True) if is_vector else None

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """A slice of the grid where all sequences end together, otherwise a gather of cells."""
        layout = ctx.layout(x.axes)
        return _at(ctx, x, -1 if layout.simple and layout.full else layout.length - 1)


def _at(ctx: Context, x: Traced, step: int | Array) -> Traced:
    """One step of each sequence, zero for one of which a gather or convolution has left none; of -1 the grid's last."""
    layout, data = ctx.layout(x.axes), ctx.data(x)
    is_last = isinstance(step, int) and step < 0
    steps = jax.tree.map(lambda d: d[-1] if is_last else layout.at(d, step), data)
    if not layout.full:
        is_empty = (layout.length == 0) & ctx.mask((BATCH,))  # padding repeats a sample
        steps = jax.tree.map(lambda d: jnp.where(expand_to(is_empty, d.ndim), 0, d), with_values(steps))
    return Traced(steps, (BATCH,))


class GridSlice(type(GatherPacked)):  # type: ignore[misc]
    """The steps from `begin` to before `end`, counted from the end if not positive, as a slice of the grid.

    Only the lengths of the sequences depend on the index, and not even these if all are known to be equal.
    Shapes: source [*shape] with a sequence axis, index [] -> [*shape] with the axes of the index.
    """

    name = "Sequence::GridSlice"

    def step_condition(self, node: Node) -> Edge | None:
        """None: the steps are known, whatever the condition."""
        return None

    def lower_packed(self, ctx: Context, attrs: Attrs, source: Traced, index: Traced) -> Traced:
        """Sequences keep their rows and first cells; the cells after their ends hold whatever was there."""
        old, new = ctx.layout(source.axes), ctx.layout(index.axes)
        # The first steps of pieces that continue sequences are elsewhere; data fed along the new axis are packed alone.
        if old.origin is not None or new.row is not old.row:
            return super().lower_packed(ctx, attrs, source, index)
        begin, end, steps = attrs["begin"], attrs["end"], new.time
        if old.simple and old.full and begin + steps == (min(end, old.time) if end > 0 else old.time + end):
            axis = ctx.sequence_axis(index.axes)
            assert axis is not None
            ctx.layouts[axis] = replace(new, length=jnp.full_like(new.length, steps), full=True)

        def sliced(d: Array) -> Array:
            rest = d[begin : begin + steps]
            return jnp.concatenate([rest, jnp.broadcast_to(d[-1:], (steps - rest.shape[0], *d.shape[1:]))])

        return Traced(jax.tree.map(sliced, ctx.data(source)), index.axes)


class LocalResponseNormalization(Primitive):
    """x / (bias + a sum(x**2 over neighbouring channels))**beta: a few sums, where a convolution would be slow.

    Operands: x, a kernel with `a` at all places, bias, beta.
    Shapes: x [C, H, W], kernel [1, channels in the window, 1, 1], scalars -> as x.
    """

    name = "LocalResponseNormalization"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, kernel: Traced, bias: Traced, beta: Traced) -> Traced:
        """In the order of axes that the data have."""
        data = x.data if x.channels_last else ctx.array(x)
        axis = data.ndim - 1 if x.channels_last else ctx.lead(x.axes)
        window = place(data.shape[axis], kernel.data.size, auto=True)
        squares = padded(data * data, axis, window, 0)
        base = bias.data + kernel.data.reshape(-1)[0] * total(squares, axis, window, squares.shape[axis])
        power = jnp.exp(-beta.data * ELEMENTWISE["Log"].lower({}, base))
        return Traced(data * power, x.axes, channels_last=x.channels_last)


SEQUENCE_SOFTMAX, SEQUENCE_FIRST, SEQUENCE_LAST = SequenceSoftmax(), SequenceFirst(), SequenceLast()
GRID_SLICE, LOCAL_RESPONSE_NORMALIZATION = GridSlice(), LocalResponseNormalization()
