"""A plan as a pure JAX function of arrays, for programs that are not ours to compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...graph.axis import Axis
from ...graph.errors import ShapeError, explain
from ...graph.function import Function
from ...graph.variable import Variable
from ..data.layout import Batch, Layout
from ..lower.lower import execute
from ..lower.values import Context, Value
from ..plan.plan import Plan

Given = tuple[Any, Any]  # an array, and the lengths of its sequences or None


def run(
    plan: Plan, leaves: Sequence[Any], arguments: Sequence[Given], key: Any, training: bool
) -> tuple[list[Any], dict[int, Any]]:
    """The outputs, and new values of leaves that are assigned, by their place in the plan.

    Shapes: an argument is [*shape] without dynamic axes, [batch, *shape], or [batch, time, *shape] with lengths int32
            [batch] (None: all of them `time`); so are outputs, with zeros behind the end of a sequence.
    Errors: ShapeError if batches are of different sizes.
    """
    places = [_Place(v, *given) for v, given in zip(plan.arguments, arguments, strict=True)]
    sizes = {place.variable: place.size for place in places if place.size is not None}
    if len(set(sizes.values())) > 1:
        raise ShapeError(explain(
            "the batches of the arguments are of different sizes: "
            + ", ".join(f"{v!r}: {n}" for v, n in sizes.items())
        ))
    size = next(iter(sizes.values()), None)
    layouts = {place.axis: place.layout for place in reversed(places) if place.axis is not None}
    numbers = {node: i for i, node in enumerate(plan.random)}

    def stream_of(node: Function) -> tuple[Any, Any]:
        return key, numbers[node]

    batch = None if size is None else Batch(jnp.int32(size), size, True)
    ctx = Context(training, batch, layouts, stream_of)
    env = {place.variable: Value(place.grid(layouts), place.variable.dynamic_axes) for place in places}
    env |= {v: Value(jnp.asarray(leaf, v.dtype), ()) for v, leaf in zip(plan.leaves, leaves, strict=True)}
    execute(plan, ctx, env)
    updates = {plan.leaves.index(leaf): value for leaf, value in ctx.updates.items()}
    return [_plain(ctx, env[v]) for v in plan.outputs], updates


class _Place:
    """An argument's array, and where its samples stand."""

    def __init__(self, variable: Variable, data: Any, lengths: Any) -> None:
        self.variable, self.axis = variable, variable.sequence_axis
        self.data = jnp.asarray(data, variable.dtype)
        self.size: int | None = self.data.shape[0] if variable.dynamic_axes else None
        if self.axis is not None:
            assert self.size is not None
            time = self.data.shape[1]
            known = jnp.full(self.size, time, jnp.int32) if lengths is None else jnp.asarray(lengths, jnp.int32)
            rows = jnp.arange(self.size, dtype=jnp.int32)
            self.layout = Layout(
                rows, jnp.zeros_like(rows), known, time, self.size, simple=True, full=lengths is None
            )

    def grid(self, layouts: Mapping[Axis, Layout]) -> Any:
        """The data as programs have them: time first, and in the padding a sample."""
        if self.axis is None:
            return self.data
        layout = layouts[self.axis]
        if layout.time != self.layout.time:
            raise ShapeError(explain(
                f"{self.variable!r} has {self.layout.time} steps, another argument with its sequence axis {layout.time}"
            ))
        data = jnp.moveaxis(self.data, 0, 1)
        if layout.full:
            return data
        return jnp.where(layout.mask.reshape(*layout.mask.shape, *(1,) * (data.ndim - 2)), data, data[0, 0])


def _plain(ctx: Context, value: Value) -> Any:
    data = ctx.array(value)
    if ctx.sequence_axis(value.axes) is None:
        return data
    layout = ctx.layout(value.axes)
    if layout.simple and layout.full:
        return jnp.moveaxis(data, 0, 1)
    time = jnp.arange(layout.time)
    inside = time < layout.length[:, None]
    picked = data[jnp.where(inside, layout.start[:, None] + time, 0), layout.row[:, None]]
    return jnp.where(inside.reshape(*inside.shape, *(1,) * (picked.ndim - 2)), picked, 0)


def random_key(plan: Plan) -> Any:
    """A key for those who give none: that of the first node that draws numbers."""
    seed = plan.random[0].node_attributes["rngSeed"] % 2**32 if plan.random else 0
    return jax.random.key(seed)


__all__ = ["random_key", "run"]
