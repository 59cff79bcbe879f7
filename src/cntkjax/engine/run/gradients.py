"""Gradients outside of training: a program that computes some outputs, and what flows back from roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.variable import Leaf, Variable
from ..data.ragged import Ragged
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Value
from ..plan.parts import resolve
from ..plan.plan import Plan
from .program import (
    Feed,
    Feeds,
    Minibatch,
    Result,
    apply_changes,
    arguments_in_order,
    created_layouts,
    gather_rows,
    leaf_arrays,
    masked,
    pad_rows,
    plan_of,
    program_of,
    results,
    state_changes,
)
from .python_callbacks import CallbackResults
from .random_streams import RandomState, random_inputs


def gradients(
    outputs: Sequence[Variable], roots: Mapping[Variable, Feed | None], wrt: Sequence[Variable], feeds: Feeds,
    random: RandomState | None = None, memory: Memory | None = None, callback_results: CallbackResults | None = None,
    given: Sequence[Variable] = (),
) -> tuple[list[Result], list[Result]]:
    """Gradients of roots with respect to leaves and arguments, summed over samples for leaves; and outputs.

    `roots` maps each root to the gradient that arrives there; None means ones. `callback_results`: what functions of
    the user have returned in a forward pass with these feeds that came before; then only assignments are
    still to take effect.
    `given`: values that are fed, too.
    """
    memory = Memory() if memory is None else memory
    every = [*outputs, *roots]
    plan = plan_of(every, given)
    targets = [resolve(v) for v in wrt]
    places = tuple(
        ("leaf", plan.leaves.index(v)) if isinstance(v, Leaf) and v in plan.leaves
        else ("argument", plan.arguments.index(v)) if v in plan.arguments else None
        for v in targets
    )
    fed = tuple(g is not None for g in roots.values())
    kind, body = ("gradients", len(outputs), places, fed), _Gradients(len(outputs), places, fed)
    program = program_of(plan, kind, body, True)
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    minibatch.callback_results = callback_results
    own = program.plan  # of the graph that it was made for: grids go by its axes
    extra = [
        _root_gradient(v, g, minibatch)
        for v, g in zip(own.outputs[len(outputs) :], roots.values(), strict=True) if g is not None
    ]
    numbers = random_inputs(plan, again=random)
    data, found, layouts, (updates, *others) = program(minibatch, leaf_arrays(plan), numbers, extra=extra)
    if callback_results is not None:
        updates = {i: value for i, value in updates.items() if plan.leaves[i] in plan.assigned}
    apply_changes(plan, minibatch, memory, (updates, *others))
    made = results(every, plan, program, minibatch, data, layouts)[: len(outputs)]
    gradient_results = []
    for v, target, place, d in zip(wrt, targets, places, found[: len(wrt)], strict=True):
        axis = own.arguments[place[1]].sequence_axis if place is not None and place[0] == "argument" else None
        grid = None if axis is None else minibatch.grids.get(axis)
        layout = None if grid is None else (grid.row, grid.start, grid.length)
        if d is None:  # nothing flows there
            d = np.zeros(v.shape, v.dtype) if isinstance(v, Leaf) else np.zeros(
                np.shape(minibatch.arguments[plan.arguments.index(target)]) if target in plan.arguments else v.shape,
                v.dtype,
            )
        gradient_results.append(Result(v, d, minibatch.count, layout, target in plan.gathered_leaves))
    return gradient_results, made


def _root_gradient(root: Variable, feed: Feed, minibatch: Minibatch) -> Any:
    if not isinstance(feed, Ragged):
        return feed
    axis = root.sequence_axis
    if axis is None:
        return pad_rows(feed.data, minibatch.batch.size, root)  # type: ignore[union-attr]
    if axis not in minibatch.grids:  # only the program knows where its samples stand
        assert minibatch.batch is not None and feed.lengths is not None
        begins = np.zeros(minibatch.batch.size, np.int32)
        begins[: len(feed.lengths)] = feed.offsets[:-1]
        return feed.data, begins
    return gather_rows(feed.data, minibatch.grids[axis].index, root)


def _placed(ctx: Context, variable: Variable, feed: Any) -> Any:
    """What is fed end to end, with where each sequence begins, put into the grid of an axis made in the program."""
    if not isinstance(feed, tuple):
        return feed
    (samples, begins), layout = feed, ctx.layout(variable.dynamic_axes)
    return samples[jnp.minimum(begins[layout.seq] + layout.position, len(samples) - 1)]


class _Gradients:
    """The body of a gradient program."""

    def __init__(self, n_outputs: int, places: Sequence[Any], given: Sequence[bool]) -> None:
        self.n_outputs, self.places, self.given = n_outputs, places, given

    def __call__(self, plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, extra: Any) -> Any:
        ctx.differentiates = True
        known = list(ctx.layouts)
        own = [
            None if p is None else plan.leaves[p[1]] if p[0] == "leaf" else plan.arguments[p[1]] for p in self.places
        ]
        env = env | {v: Value(ctx.array(env[v]), v.dynamic_axes) for v in own if v is not None and env[v].is_sparse}
        # As in CNTK the backward of users' functions is called for all arguments; what is returned is not left out.
        asking = [v for v in plan.arguments if v.needs_gradient and not env[v].is_sparse] if plan.calls_python else []
        own += asking
        differentiated = list(dict.fromkeys(v for v in own if v is not None))
        roots = plan.outputs[self.n_outputs :]

        def forward(data: list[Any]) -> Any:
            here = env | {v: Value(d, v.dynamic_axes) for v, d in zip(differentiated, data, strict=True)}
            execute(plan, ctx, here)
            every = [ctx.array(here[v]) for v in plan.outputs]
            return every[self.n_outputs :], (every, created_layouts(plan, ctx, known), state_changes(plan, ctx))

        made, back, (data, layouts, changes) = jax.vjp(forward, [env[v].data for v in differentiated], has_aux=True)
        arriving = iter(extra)
        incoming = [
            masked(
                ctx, root.dynamic_axes, _placed(ctx, root, next(arriving)) if g else jnp.ones_like(d)
            ).astype(d.dtype)
            for root, d, g in zip(roots, made, self.given, strict=True)
        ]
        found = dict(zip(differentiated, back(incoming)[0], strict=True))
        return data, [None if v is None else found.get(v) for v in own], layouts, changes
