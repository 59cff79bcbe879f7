"""Evaluation: the values of some outputs, from one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._typing import PyTree
from ...graph.cells import Changes
from ...graph.errors import AxisError, BatchSizeError
from ...graph.variable import Edge
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Environment
from ..plan.plan import Plan
from .context import created_layouts
from .direct import bindings, results
from .handover import Captures, hand_over, replace_state
from .minibatch import Feeds, PackedMinibatch, arguments_in_order
from .program import Program
from .program_cache import plan_of, programs
from .python_callbacks import CallbackResults
from .random_streams import RandomState, after_drawing, draw_random_state, random_inputs
from .result import Result, collect_results
from .state import StateChanges, changes_of_cells, computed_lengths_error, leaf_arrays, state_changes


def evaluate_in_one_program(
    outputs: Sequence[Edge], feeds: Feeds, training: bool = False, memory: Memory | None = None,
    assign: bool = True, callback_results: CallbackResults | None = None, random: RandomState | None = None,
    known: Sequence[Edge] = (), write_state: bool = True,
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
    fed = arguments_in_order(plan, feeds)
    if not training and random is None and (shortly := results(outputs, plan, fed, memory)) is not None:
        return shortly
    program = programs.program(plan, "evaluate", evaluation_body, training)
    minibatch = program.pack(plan, fed, memory)
    minibatch.callback_results = callback_results

    def written(changes: StateChanges) -> StateChanges:
        if assign and write_state:
            return changes
        return changes._replace(updates={
            i: value for i, value in changes.updates.items() if write_state and plan.leaves[i] not in plan.assigned
        })

    data, layouts, _ = run_program(program, plan, minibatch, memory, random, written)
    if not training:
        bindings(plan).note(program, minibatch, fed)
    return collect_results(outputs, program.plan, minibatch, data, layouts)


def run_program(
    program: Program, plan: Plan, minibatch: PackedMinibatch, memory: Memory, random: RandomState | None,
    written: Callable[[StateChanges], StateChanges], extra: PyTree = (),
) -> tuple[Any, ...]:
    """Run a program whose outputs end with state changes, and make those of them that `written` returns.

    `random`: a state that was drawn before; None draws the next one.
    Errors: AxisError for computed sequences whose lengths differ, but have to be equal; nothing is changed then.
    """
    drawn: RandomState = {}

    def compute(outputs: Captures) -> None:
        nonlocal drawn
        # Leaves first: a sample of random numbers is kept as long as the array of its weights is the same.
        leaves = leaf_arrays(plan)
        if random is None:
            drawn = draw_random_state(plan, memory.streams, program.training, program.columns(minibatch))
        else:
            drawn = random
        try:
            program(minibatch, leaves, random_inputs(plan, drawn), extra=extra, capture=outputs)
        except BatchSizeError:  # its stages are given these numbers
            replace_state(after_draws())
            raise

    def after_draws() -> Changes:
        return {} if random is not None else after_drawing(drawn, memory.streams, program.training)

    def conclude(outputs: tuple[Any, ...]) -> tuple[Changes, tuple[tuple[Any, ...], AxisError | None]]:
        error = computed_lengths_error(plan, minibatch, outputs[-1])
        written_to = {} if error else changes_of_cells(plan, minibatch, memory, written(outputs[-1]))
        return {**after_draws(), **written_to}, (outputs, error)

    outputs, error = hand_over(compute, conclude, plan.calls_python)
    if error is not None:
        raise error
    return outputs


def evaluation_body(
    plan: Plan, ctx: Context, env: Environment, donated: PyTree, extra: PyTree
) -> tuple[list[PyTree], dict[int, PyTree], StateChanges]:
    """The values of the outputs, the layouts of sequences that are created on the way, and state changes."""
    ctx.forward_only = not any(node.primitive.recomputes_operands for node in plan.nodes)
    fed_axes = list(ctx.layouts)
    execute(plan, ctx, env)
    data = [ctx.data(env[v]) for v in plan.outputs]
    return data, created_layouts(plan, ctx, fed_axes), state_changes(plan, ctx)


__all__ = ["evaluate_in_one_program", "evaluation_body", "run_program"]
