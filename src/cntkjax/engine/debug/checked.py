"""Checked mode: before a program runs, all values that it would compute are searched for NaN.

Infinity passes, as in CNTK: the maximum of an empty set is infinite.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..._typing import Array, PyTree
from ...graph.errors import explain
from ...graph.settings import Settings
from ...graph.variable import Edge, producer
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Environment
from ..plan.parts import outputs_of
from ..plan.plan import Plan
from ..run.context import masked
from ..run.handover import STATE, settle
from ..run.minibatch import Feeds, arguments_in_order
from ..run.program_cache import programs
from ..run.random_streams import draw_random_state, random_inputs
from ..run.state import leaf_arrays
from .timing import time_nodes


def check(plan: Plan, feeds: Feeds, training: bool, memory: Memory, number: int | None = None) -> None:
    """In checked mode, search all values for NaN; with node timing on, time the operations.

    `number`: that of the minibatch, for the message.
    Errors: RuntimeError that names the first operation whose result has a NaN, but none of whose operands has one.
    """
    if Settings.timed:
        time_nodes(plan, feeds, training, memory)
    if not Settings.checked or plan.calls_python:  # user code is not called twice
        return
    program = programs.program(plan, "check", _are_free_of_nan, training)
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    with STATE:
        settle()
        drawn = draw_random_state(plan, memory.streams, training, program.columns(minibatch))
        random = random_inputs(plan, drawn)
        flags = program(minibatch, leaf_arrays(plan), random)
    for variable, is_free in zip(_checked_variables(plan), np.asarray(flags), strict=True):
        if not is_free:
            raise _nan_error(variable, number)


def _nan_error(variable: Edge, number: int | None) -> RuntimeError:
    owner = producer(variable)
    place = "the data of" if owner is None else f"the result of {owner.op_name} {owner.name or owner.uid!r}:"
    if number is not None:
        place = f"minibatch {number}, in {place}"
    operands = {"value": variable}
    if owner is not None:
        operands |= {f"[{i}]": v for i, v in enumerate(owner.node_inputs)}
    size = None if owner is None else owner.primitive.index_limit(owner)
    return RuntimeError(explain(
        f"checked mode: NaN in {place} {variable!r}", operands,
        "look at the operands, which have none: infinity minus infinity or times 0, after too large a learning "
        "rate, or from data that are not scaled" if size is None else
        f"look at the indices, of which one is not in the range from 0 to {size - 1}",
    ))


def _checked_variables(plan: Plan) -> list[Edge]:
    """Inputs of the plan and results of its parts; values inside a loop only if they leave it."""
    return [*plan.arguments, *plan.leaves, *(v for part in plan.parts for v in outputs_of(part))]


def _are_free_of_nan(plan: Plan, ctx: Context, env: Environment, donated: PyTree, extra: PyTree) -> Array:
    """Shapes: bool [variables]."""
    execute(plan, ctx, env)
    flags = []
    for v in _checked_variables(plan):
        data = env[v].data.values if env[v].is_sparse else ctx.array(env[v])
        flags.append(jnp.asarray(True) if data is None else ~jnp.any(jnp.isnan(masked(ctx, env[v].axes, data))))
    return jnp.stack(flags)


__all__ = ["check"]
