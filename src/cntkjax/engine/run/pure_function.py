"""A plan as a pure JAX function of arrays, for JAX programs outside of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from ..._typing import Array, ArrayLike
from ...graph.axis import Axis
from ...graph.errors import ShapeError, explain
from ...graph.function import Node
from ...graph.variable import Edge
from ..data.dimensions import expand_to
from ..data.layout import Batch, Layout
from ..lower.lower import execute
from ..lower.values import Context, Traced
from ..plan.plan import Plan

Argument: TypeAlias = tuple[ArrayLike, ArrayLike | None]
"""An array, and the lengths of its sequences or None."""


def run(
    plan: Plan, leaves: Sequence[ArrayLike], arguments: Sequence[Argument], key: Array, training: bool
) -> tuple[list[Array], dict[int, Array]]:
    """The outputs, and new values of leaves that are assigned, by their place in the plan.

    Shapes: an argument is [*shape] without dynamic axes, [batch, *shape], or [batch, time, *shape] with lengths int32
            [batch] (None: all of them `time`); so are outputs, with zeros after the end of a sequence.
    Errors: ShapeError if batches are of different sizes.
    """
    inputs = [_SequenceInput(v, *argument) for v, argument in zip(plan.arguments, arguments, strict=True)]
    batch = _common_batch(inputs)
    layouts = {x.axis: x.layout for x in reversed(inputs) if x.axis is not None}
    indices = {node: i for i, node in enumerate(plan.random)}

    def stream_of(node: Node) -> tuple[Array, int]:
        return key, indices[node]

    ctx = Context(training, batch, layouts, stream_of, masks=plan.masks or {}, looped_nodes=plan.looped_nodes)
    env = {x.variable: Traced(x.grid(layouts), x.variable.dynamic_axes) for x in inputs}
    env |= {v: Traced(jnp.asarray(leaf, v.dtype), ()) for v, leaf in zip(plan.leaves, leaves, strict=True)}
    execute(plan, ctx, env)
    updates = {plan.leaves.index(leaf): value for leaf, value in ctx.updates.items()}
    return [_batch_major(ctx, env[v]) for v in plan.outputs], updates


class _SequenceInput:
    """An argument's array, and the layout of its sequences: each in a row of its own."""

    def __init__(self, variable: Edge, data: ArrayLike, lengths: ArrayLike | None) -> None:
        self.variable, self.axis = variable, variable.sequence_axis
        self.data = jnp.asarray(data, variable.dtype)
        self.size: int | None = self.data.shape[0] if variable.dynamic_axes else None
        if self.axis is not None:
            assert self.size is not None
            time = self.data.shape[1]
            length = jnp.full(self.size, time, jnp.int32) if lengths is None else jnp.asarray(lengths, jnp.int32)
            rows = jnp.arange(self.size, dtype=jnp.int32)
            self.layout = Layout(
                rows, jnp.zeros_like(rows), length, time, self.size, simple=True, full=lengths is None
            )

    def grid(self, layouts: Mapping[Axis, Layout]) -> Array:
        """The data in the form of programs: time first, and a sample in the padding."""
        if self.axis is None:
            return self.data
        layout = layouts[self.axis]
        if layout.time != self.layout.time:
            raise ShapeError(explain(
                f"{self.variable!r} has {self.layout.time} steps, "
                f"another argument with its sequence axis {layout.time}",
                fix="pad the arrays to the same number of steps, and give the lengths of the sequences",
            ))
        data = jnp.moveaxis(self.data, 0, 1)
        if layout.full:
            return data
        return jnp.where(expand_to(layout.mask, data.ndim), data, data[0, 0])


def _common_batch(inputs: Sequence[_SequenceInput]) -> Batch | None:
    sizes = {x.variable: x.size for x in inputs if x.size is not None}
    if len(set(sizes.values())) > 1:
        raise ShapeError(explain(
            "the batches of the arguments are of different sizes: "
            + ", ".join(f"{v!r}: {n}" for v, n in sizes.items()),
            fix="give all arguments the same number of samples or sequences",
        ))
    size = next(iter(sizes.values()), None)
    return None if size is None else Batch(jnp.int32(size), size, True)


def _batch_major(ctx: Context, value: Traced) -> Array:
    """The array of an output. Shapes: [time, rows, *shape] -> [batch, time, *shape], zero in the padding."""
    data = ctx.array(value)
    if ctx.sequence_axis(value.axes) is None:
        return data
    layout = ctx.layout(value.axes)
    if layout.simple and layout.full:
        return jnp.moveaxis(data, 0, 1)
    time = jnp.arange(layout.time)
    inside = time < layout.length[:, None]
    samples = data[jnp.where(inside, layout.start[:, None] + time, 0), layout.row[:, None]]
    return jnp.where(expand_to(inside, samples.ndim), samples, 0)


def random_key(plan: Plan) -> Array:
    """The default random key: that of the seed of the first node that draws numbers."""
    seed = plan.random[0].node_attributes["rngSeed"] % 2**32 if plan.random else 0
    return jax.random.key(seed)


__all__ = ["Argument", "random_key", "run"]
