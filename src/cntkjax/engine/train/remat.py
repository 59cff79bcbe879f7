"""Training with less memory: values on the way are computed again for the backward pass instead of being kept.

The parts of a plan are cut into about as many segments as each has parts. What leaves a segment is kept; the rest is
computed once more when the backward pass comes there. Memory then grows with the root of the depth, for at most
one more forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from ...graph.variable import Variable
from ..lower.lower import run_part
from ..lower.values import Context, Environment
from ..plan.parts import Part, inputs_of, outputs_of
from ..plan.plan import Plan


def execute_in_segments(plan: Plan, ctx: Context, env: Environment) -> None:
    """As `execute`, for what is to be differentiated; of the variables in between only some are put into `env`."""
    for parts, leaving in _segments(plan):
        _run(ctx, parts, leaving, env)


def _run(ctx: Context, parts: Sequence[Part], leaving: Sequence[Variable], env: Environment) -> None:
    entering = [v for v in dict.fromkeys(u for part in parts for u in inputs_of(part)) if v in env]
    axes, made, inner = list(ctx.layouts), {}, ctx

    def compute(data: Any, layouts: Any, batch: Any) -> Any:
        nonlocal made, inner
        # Layouts and batch come as arguments: what they remember having computed must not leave this function.
        known = dict(zip(axes, layouts, strict=True))
        inner = replace(ctx, batch=batch, layouts=known, updates=dict(ctx.updates), left={})
        here = env | {v: replace(env[v], data=d) for v, d in zip(entering, data, strict=True)}
        for part in parts:
            run_part(inner, part, here)
        made = {v: here[v] for v in leaving}
        new = [inner.layouts[axis] for axis in inner.layouts if axis not in axes]
        values = [v.data for v in made.values()]
        return values, new, list(inner.updates.values()), list(inner.left.values()), inner.batch

    data, layouts, updates, left, batch = jax.checkpoint(compute)(
        [env[v].data for v in entering], list(ctx.layouts.values()), ctx.batch
    )
    env.update({v: replace(value, data=d) for (v, value), d in zip(made.items(), data, strict=True)})
    ctx.layouts.update(zip([a for a in inner.layouts if a not in axes], layouts, strict=True))
    ctx.updates.update(zip(inner.updates, updates, strict=True))
    ctx.left.update(zip(inner.left, left, strict=True))
    if ctx.batch is None:  # then a node may have made a batch axis
        ctx.batch = batch


def _segments(plan: Plan) -> list[tuple[Sequence[Part], list[Variable]]]:
    """Runs of parts, each with the variables that it computes and something behind it needs."""
    size = max(math.isqrt(len(plan.parts)), 1)
    runs = [plan.parts[i : i + size] for i in range(0, len(plan.parts), size)]
    needed = set(plan.outputs)
    segments: list[tuple[Sequence[Part], list[Variable]]] = []
    for parts in reversed(runs):
        segments.append((parts, [v for part in parts for v in outputs_of(part) if v in needed]))
        needed |= {v for part in parts for v in inputs_of(part)}
    return segments[::-1]
