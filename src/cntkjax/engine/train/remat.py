"""Rematerialization: training in less memory, by computing most values again for the backward pass.

The parts of a plan are cut into about as many segments as each has parts. Values that leave a segment are saved; the
others are recomputed when the backward pass reaches it. Memory then grows with the square root of the depth, at the
cost of at most one more forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jax

from ..._typing import PyTree
from ...graph.variable import Edge
from ..data.layout import Batch, Layout
from ..lower.lower import run_part
from ..lower.values import Context, Environment, Traced
from ..plan.parts import Part, inputs_of, outputs_of
from ..plan.plan import Plan


def execute_in_segments(plan: Plan, ctx: Context, env: Environment) -> None:
    """As `execute`, for what is differentiated; adds to `env` only values that leave a segment."""
    for parts, leaving in _segments(plan):
        _run_segment(ctx, parts, leaving, env)


def _run_segment(ctx: Context, parts: Sequence[Part], leaving: Sequence[Edge], env: Environment) -> None:
    entering = [v for v in dict.fromkeys(u for part in parts for u in inputs_of(part)) if v in env]
    axes = list(ctx.layouts)
    values: dict[Edge, Traced] = {}
    inner = ctx

    def compute(data: Sequence[PyTree], layouts: Sequence[Layout], batch: Batch | None) -> PyTree:
        nonlocal values, inner
        # Layouts and batch are arguments, as the arrays that they cache must not leave this function.
        known = dict(zip(axes, layouts, strict=True))
        inner = replace(ctx, batch=batch, layouts=known, updates=dict(ctx.updates), carried_out={})
        local_env = env | {v: replace(env[v], data=d) for v, d in zip(entering, data, strict=True)}
        for part in parts:
            run_part(inner, part, local_env)
        values = {v: local_env[v] for v in leaving}
        created = [inner.layouts[axis] for axis in inner.layouts if axis not in axes]
        computed = [v.data for v in values.values()]
        return computed, created, list(inner.updates.values()), list(inner.carried_out.values()), inner.batch

    data, layouts, updates, carried_out, batch = jax.checkpoint(compute)(
        [env[v].data for v in entering], list(ctx.layouts.values()), ctx.batch
    )
    env.update({v: replace(value, data=d) for (v, value), d in zip(values.items(), data, strict=True)})
    ctx.layouts.update(zip([a for a in inner.layouts if a not in axes], layouts, strict=True))
    ctx.updates.update(zip(inner.updates, updates, strict=True))
    ctx.carried_out.update(zip(inner.carried_out, carried_out, strict=True))
    if ctx.batch is None:  # then a node may have created a batch axis
        ctx.batch = batch


def _segments(plan: Plan) -> list[tuple[Sequence[Part], list[Edge]]]:
    """Consecutive parts, with the variables that they compute and that later segments or the outputs need."""
    size = max(math.isqrt(len(plan.parts)), 1)
    runs = [plan.parts[i : i + size] for i in range(0, len(plan.parts), size)]
    needed = set(plan.outputs)
    segments: list[tuple[Sequence[Part], list[Edge]]] = []
    for parts in reversed(runs):
        segments.append((parts, [v for part in parts for v in outputs_of(part) if v in needed]))
        needed |= {v for part in parts for v in inputs_of(part)}
    return segments[::-1]


__all__ = ["execute_in_segments"]
