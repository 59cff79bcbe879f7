"""The context in which a plan is traced, and what programs ask of it."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ..._typing import AnyArray, Array
from ...graph.axis import Axis
from ...graph.function import Node
from ...graph.variable import Edge
from ..data.dimensions import expand_to
from ..data.layout import Batch, Layout
from ..data.sparse import Sparse
from ..lower.values import Context, Traced
from ..plan.plan import Plan
from .random_streams import RandomInputs
from .result import LayoutArrays


def make_context(
    plan: Plan, training: bool, batch: Batch | None, layouts: dict[Axis, Layout], random: RandomInputs | None,
    past: Sequence[Array | None],
) -> Context:
    """The context of a plan's operations, from the inputs of a program."""
    indices = {node: i for i, node in enumerate(plan.random)}

    def stream_of(node: Node) -> tuple[Array, Array]:
        assert random is not None  # only nodes in plan.random ask
        seed, offset = random.keys[indices[node]]
        return jax.random.key(seed), offset

    ctx = Context(training, batch, layouts, stream_of, masks=plan.masks or {}, looped_nodes=plan.looped_nodes)
    if random is not None:
        for i, numbers in random.numbers.items():
            node = plan.random[i]
            axes = node.node_outputs[0].dynamic_axes if node.primitive.draws_columns(node) else ()
            ctx.random_numbers[node] = Traced(numbers, axes)
    ctx.carried_in = {n: v for n, v in zip(plan.delays, past, strict=False) if v is not None}
    return ctx


def value_of_argument(variable: Edge, data: AnyArray | Sparse) -> Traced:
    """The value of what is fed for a variable, in its type; see `feeds.fed_array` for integers."""
    if isinstance(data, Sparse) or not jnp.issubdtype(data.dtype, jnp.integer):
        return Traced(data, variable.dynamic_axes)
    return Traced(data.astype(variable.dtype), variable.dynamic_axes, integers=data)  # type: ignore[arg-type]


def created_layouts(plan: Plan, ctx: Context, fed_axes: Sequence[Axis]) -> dict[int, LayoutArrays]:
    """Layouts along sequence axes that are created in the program, by the place of the output.

    `fed_axes`: the sequence axes of the arguments.
    """
    return {
        i: (layout.row, layout.start, layout.length)
        for i, v in enumerate(plan.outputs)
        if v.sequence_axis is not None and v.sequence_axis not in fed_axes
        for layout in (ctx.layouts[v.sequence_axis],)
    }


def masked(ctx: Context, axes: Sequence[Axis], data: Array) -> Array:
    """The data with zeros in the padding."""
    if not ctx.has_padding(tuple(axes)):
        return data
    return jnp.where(expand_to(ctx.mask(tuple(axes)), data.ndim), data, jnp.zeros((), data.dtype))


def sum_over_samples(ctx: Context, value: Traced) -> Array:
    """The sum over all elements of all samples, in at least single precision."""
    data = ctx.array(value)
    return jnp.sum(masked(ctx, value.axes, data.astype(jnp.promote_types(data.dtype, jnp.float32))))


__all__ = ["created_layouts", "make_context", "masked", "sum_over_samples"]
