"""Checked mode: before a program runs, every value that it would compute is searched for NaN.

Infinity passes, as in CNTK: a maximum over nothing is one.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...graph.errors import explain
from ...graph.settings import Settings
from ...graph.variable import Variable
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Value
from ..plan.parts import outputs_of
from ..plan.plan import Plan
from ..run.program import Feeds, arguments_in_order, leaf_arrays, masked, program_of
from ..run.random_streams import random_inputs
from .timing import time_nodes


def check(plan: Plan, feeds: Feeds, training: bool, memory: Memory, number: int | None = None) -> None:
    """In checked mode: RuntimeError that names the first operation whose result, but no operand, has NaN in it.

    Operations are timed here too, if that is asked for.
    `number`: that of the minibatch, for the message.
    """
    if Settings.timed:
        time_nodes(plan, feeds, training, memory)
    if not Settings.checked or plan.calls_python:  # users' code is not called twice
        return
    program = program_of(plan, "check", _sound, training)
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    flags = program(minibatch, leaf_arrays(plan), random_inputs(plan, advance=False))
    sources = [*plan.arguments, *plan.leaves]
    for variable, sound in zip([*sources, *_computed(plan)], np.asarray(flags), strict=True):
        if not sound:
            owner = variable._owner
            what = "the data of" if owner is None else f"the result of {owner.op_name} {owner._name or owner.uid!r}:"
            if number is not None:
                what = f"minibatch {number}, in {what}"
            operands: dict[str, Any] = {"value": variable}
            if owner is not None:
                operands |= {f"[{i}]": v for i, v in enumerate(owner.node_inputs)}
            raise RuntimeError(explain(
                f"checked mode: NaN in {what} {variable!r}", operands,
                "look at the operands, which have none: infinity minus infinity or times 0, after too large a learning "
                "rate, or from data that are not scaled",
            ))


def _computed(plan: Plan) -> list[Variable]:
    """Variables that can be looked at: those in a loop only as far as they leave it."""
    return [v for part in plan.parts for v in outputs_of(part)]


def _sound(plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, extra: Any) -> Any:
    execute(plan, ctx, env)
    found = []
    for v in [*plan.arguments, *plan.leaves, *_computed(plan)]:
        data = env[v].data.values if env[v].is_sparse else ctx.array(env[v])
        found.append(jnp.asarray(True) if data is None else ~jnp.any(jnp.isnan(masked(ctx, env[v].axes, data))))
    return jnp.stack(found)
