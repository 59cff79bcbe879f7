"""From a planned graph to a JAX computation: one node after the other, loops as scans."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.variable import Edge
from ..plan.parts import Loop, Part, inputs_of, outputs_of
from ..plan.plan import Plan
from ..plan.repeats import Repeat, repeats
from ..xla.platform import lowering
from .early_exit import run_early_exit_loop
from .loops import run_loop
from .nodes import run_node
from .repeats import run_repeat
from .side_by_side import run_side_by_side
from .values import Context, Environment


def execute(plan: Plan, ctx: Context, env: Environment) -> Environment:
    """Compute all variables of a plan; `env` holds the leaves and arguments, and is filled."""
    samples = _samples(ctx) if lowering().stacked_weights else 0
    # What is alike need not have masks in the same places. Repeats are not kept, as users may edit the graph.
    items = plan.parts if plan.masks else repeats(plan.parts, plan.outputs, samples)
    is_plain = not plan.masks and not any(isinstance(item, Repeat) for item in items)
    if is_plain and lowering().loops_side_by_side:
        for group in plan.groups:
            run_group(ctx, group, env)
        return env
    for item in items:
        if isinstance(item, Repeat):
            run_repeat(ctx, item, env)
        else:
            run_part(ctx, item, env)
    return env


def _samples(ctx: Context) -> int:
    """Of the minibatch, in all steps; 0 where sizes are symbols."""
    sizes = [layout.time * layout.rows for layout in ctx.layouts.values()]
    sizes += [] if ctx.batch is None else [ctx.batch.size]
    return max((size for size in sizes if isinstance(size, int)), default=0)


def run_group(ctx: Context, group: Sequence[Part], env: Environment) -> None:
    """Compute the outputs of a node, of a loop, or of loops side by side."""
    if len(group) == 1:
        run_part(ctx, group[0], env)
    else:
        run_side_by_side(ctx, [part for part in group if isinstance(part, Loop)], env)


def run_part(ctx: Context, part: Part, env: Environment) -> None:
    """Compute the outputs of a node or of a loop."""
    if not isinstance(part, Loop):
        run_node(ctx, part, env)
    elif part.fused_parts:
        run_early_exit_loop(ctx, part, env, run_part)
    else:
        run_loop(ctx, part, env)


def execute_after(plan: Plan, ctx: Context, env: Environment, changed: frozenset[Edge]) -> None:
    """Recompute what depends on variables whose values in `env` were changed; these keep their new values.

    What is missing in `env` is computed too.
    """
    dirty = set(changed)
    for part in plan.parts:
        outputs = outputs_of(part)
        if dirty.isdisjoint(inputs_of(part)) and all(v in env for v in outputs):
            continue
        new_values = {v: env[v] for v in outputs if v in changed}
        run_part(ctx, part, env)
        env.update(new_values)
        dirty.update(outputs)


__all__ = ["execute", "execute_after", "run_part"]
