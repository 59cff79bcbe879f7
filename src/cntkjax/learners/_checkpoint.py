"""A learner's state as CNTK's checkpoints have it, and back.

CNTK keeps for each parameter what our transformations keep, field by field in the same order: see _transforms.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..formats.checkpoint import LearnerState, Rates, pack_state, unpack_state
from ..formats.containers import unwrap_values
from ..graph.errors import explain
from ..parallel.block_momentum import BlockMomentum
from ._counters import Counters
from ._schedules import TrainingParameterSchedule

if TYPE_CHECKING:
    from ._learner import Learning


def state_of(learner: Learning) -> LearnerState | dict[str, Any]:
    """What a checkpoint keeps of a learner: everything that changes while it learns; or what the user's class says.

    Errors: TypeError if that is no dict.
    """
    if learner.keeper is None:
        return own_state_of(learner)
    said = learner.keeper.create_checkpoint()
    if not isinstance(said, LearnerState | Mapping):
        raise TypeError(explain(
            f"{learner!r}: create_checkpoint returned {said!r}", fix="let it return a dict of numbers, texts and arrays"
        ))
    return said if isinstance(said, LearnerState) else unwrap_values(said)


def optax_state(learner: Learning, state: LearnerState | dict[str, Any]) -> Any:
    """The checkpoint's state of the learner's transformation, to be adopted.

    Errors: ValueError if the checkpoint is of a learner of other parameters or of another kind.
    """
    return own_optax_state(learner, state) if learner.keeper is None else None


def adopt(learner: Learning, state: LearnerState | dict[str, Any], transform_state: Any) -> None:
    """Make a learner go on where the one went that the checkpoint is of. This cannot fail, unless the user's code does.

    The schedule of the learning rate is the checkpoint's; momentum and all else stay what the learner was made with.
    """
    if learner.keeper is None:
        take_over(learner, state, transform_state)  # type: ignore[arg-type]
    else:
        learner.keeper.restore_from_checkpoint(state)
    if isinstance(learner.distribution, BlockMomentum):  # what users' classes say has no place for blocks
        kept = state if isinstance(state, LearnerState) else None
        learner.distribution.go_on(kept.all_workers_samples or 0 if kept else 0, kept.block_gradients if kept else None)


def own_state_of(learner: Learning) -> LearnerState:
    """`state_of` but for what the user's class says."""
    seen, schedule, parameters = learner.counters, learner._learning_rate_schedule, learner.parameters
    way = learner.distribution
    blocks = way if isinstance(way, BlockMomentum) else None
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.optax_state)]
    fields, is_cntks = _fields(learner, leaves)
    return LearnerState(
        samples=seen.samples,
        minibatches=seen.minibatches,
        sweeps=seen.sweeps,
        rates=Rates(
            schedule.entries,
            schedule.epoch_size,
            schedule.minibatch_size,
            seen.rate_samples if schedule.epoch_size else seen.rate_sweeps,
        ),
        smoothed_gradients=[pack_state(arrays, p.dtype) for arrays, p in zip(fields, parameters, strict=True)],
        smoothed_count=seen.smoothed,
        noise_seed=learner._noise_seed,
        all_workers_samples=None if way is None else seen.samples if blocks is None else blocks.seen,
        block_gradients=None if blocks is None else blocks.gradients([p.value for p in parameters]),
        other_state=[np.asarray(v.value) for v in learner.kept] if is_cntks else [a.astype(np.float64) for a in leaves],
    )


def own_optax_state(learner: Learning, state: Any) -> Any:
    """`optax_state` but for what the user's class says."""
    if not isinstance(state, LearnerState):
        raise ValueError(f"{learner!r}: the checkpoint has the state of another kind of learner: {state!r}")
    parameters = learner.parameters
    if len(state.smoothed_gradients) != len(parameters):
        raise ValueError(
            f"{learner!r} has {len(parameters)} parameters, but in the checkpoint the learner has "
            f"{len(state.smoothed_gradients)}"
        )
    leaves, tree = jax.tree.flatten(learner.optax_state)
    fields, is_cntks = _fields(learner, leaves)
    if is_cntks:
        parts = [
            unpack_state(stored, len(mine), tuple(p.shape), f"{learner!r}, parameter {p.name or p.uid!r}")
            for stored, mine, p in zip(state.smoothed_gradients, fields, parameters, strict=True)
        ]
        arrays = [parts[i % len(parts)][i // len(parts)] for i in range(len(leaves))]
        if state.other_state and [a.shape for a in state.other_state] != [tuple(v.shape) for v in learner.kept]:
            raise ValueError(f"{learner!r}: the checkpoint has the state of a learner that keeps other variables")
    elif [np.shape(a) for a in state.other_state] == [np.shape(leaf) for leaf in leaves]:
        arrays = state.other_state
    else:
        raise ValueError(f"{learner!r}: the checkpoint has the state of another kind of learner")
    with learner._precision():
        return jax.tree.unflatten(
            tree, [jax.numpy.array(a, leaf.dtype) for a, leaf in zip(arrays, leaves, strict=True)]
        )


def take_over(learner: Learning, state: LearnerState, transform_state: Any) -> None:
    """`adopt` but for what the user's class says."""
    rates = state.rates
    learner.optax_state = transform_state
    for variable, value in zip(learner.kept, state.other_state, strict=False):  # CNTK's checkpoints have no such values
        variable.value = value
    learner._learning_rate_schedule = TrainingParameterSchedule(
        list(rates.entries), rates.epoch_size or None, rates.minibatch_size
    )
    learner._noise_seed = state.noise_seed
    start = {"rate_samples" if rates.epoch_size else "rate_sweeps": rates.start}
    learner.counters = replace(
        Counters(state.samples, state.minibatches, state.sweeps, smoothed=state.smoothed_count or 0.0), **start
    )


def _fields(learner: Learning, leaves: list[Any]) -> tuple[list[list[Any]], bool]:
    """For each parameter the arrays that stand for it in the state; whether the whole state is such arrays.

    A chain of optax pieces that keep other things has a state that CNTK's layout has no place for.
    """
    parameters = learner.parameters
    count = len(parameters)
    fits = len(leaves) % count == 0 and all(
        np.shape(leaf) == tuple(parameters[i % count].shape) for i, leaf in enumerate(leaves)
    )
    return [leaves[i::count] if fits else [] for i in range(count)], fits
