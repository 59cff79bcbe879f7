"""Evaluation: the values of some outputs, from one program."""

from __future__ import annotations

from collections.abc import Sequence

from ..._typing import PyTree
from ...graph.variable import Variable, producer
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Environment
from ..plan.plan import Plan
from .context import created_layouts
from .minibatch import Feeds, arguments_in_order
from .program_cache import plan_of, programs
from .python_callbacks import CallbackResults
from .random_streams import RandomState, random_inputs
from .result import Result, collect_results
from .state import StateChanges, apply_changes, leaf_arrays, state_changes


def evaluate(
    outputs: Sequence[Variable], feeds: Feeds, training: bool = False, memory: Memory | None = None,
    assign: bool = True, callback_results: CallbackResults | None = None, random: RandomState | None = None,
    known: Sequence[Variable] = (), write_state: bool = True,
) -> list[Result]:
    """Compute outputs.

    `memory` is for sequences that are cut between minibatches. Without `assign`, what `Assign` nodes write waits for
    the backward pass that follows, as in CNTK; without `write_state` no leaf is written at all. Results of user
    functions are added to `callback_results`. `random`: a state that was drawn before. `known`: variables that are
    fed although they could be computed.
    Errors: BatchSizeError if the evaluation takes several programs (`run/staged_execution.py`).
    """
    memory = Memory() if memory is None else memory
    plan = plan_of(outputs, known)
    program = programs.program(plan, "evaluate", _evaluate, training)
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    minibatch.callback_results = callback_results
    leaves = leaf_arrays(plan)  # first: a sample is kept as long as the array of its weights is the same
    inputs = random_inputs(plan, again=random)
    data, layouts, changes = program(minibatch, leaves, inputs)
    if not (assign and write_state):
        updates = {
            i: value for i, value in changes.updates.items() if write_state and plan.leaves[i] not in plan.assigned
        }
        changes = changes._replace(updates=updates)
    apply_changes(plan, minibatch, memory, changes)
    return collect_results(outputs, program.plan, minibatch, data, layouts)


def _evaluate(
    plan: Plan, ctx: Context, env: Environment, donated: PyTree, extra: PyTree
) -> tuple[list[PyTree], dict[int, PyTree], StateChanges]:
    fed_axes = list(ctx.layouts)
    execute(plan, ctx, env)
    data = [env[v].data if env[v].is_sparse and producer(v) is not None else ctx.array(env[v]) for v in plan.outputs]
    return data, created_layouts(plan, ctx, fed_axes), state_changes(plan, ctx)


__all__ = ["evaluate"]
