"""A learner's state in the layout of CNTK's checkpoints, and back.

CNTK stores for each parameter the same arrays as our transformations, field by field in the same order: see
_transforms.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import jax
import numpy as np

from .._typing import AnyArray, Array, PyTree
from ..engine.train.learner import StepLearner
from ..formats.checkpoint import LearnerState, Rates, pack_state, unpack_state
from ..formats.containers import unwrap_values
from ..graph.cells import Cell
from ..graph.errors import explain
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel
from ._counters import Counters
from ._schedules import TrainingParameterSchedule

T = TypeVar("T", bound="AnyArray")
UserState: TypeAlias = dict[str, Any]  # what a user's class stores: numbers, texts, arrays


class CustomCheckpoint(Protocol):
    """A user's learner that defines its own checkpoints."""

    def create_checkpoint(self) -> Any:
        """A dict of numbers, texts and arrays."""

    def restore_from_checkpoint(self, checkpoint: UserState, /) -> None:
        """Load such a dict."""


class SavedLearner(StepLearner, Protocol):
    """What a checkpoint saves and restores of a learner; `LearnerCore` provides it."""

    counters_cell: Cell[Counters]
    rate_schedule: TrainingParameterSchedule
    noise_seed: int
    strategy: DataParallel | BlockMomentum | None
    saves_state: ClassVar[bool]  # whether later steps depend on the state of `transform`

    @property
    def counters(self) -> Counters:
        """What it has counted."""

    @property
    def extra_variables(self) -> Sequence[Any]:
        """Variables that change in a step, besides the parameters."""

    @property
    def custom_checkpoint(self) -> CustomCheckpoint | None:
        """The user's object that defines its own checkpoints, if it does."""

    def precision(self) -> AbstractContextManager[Any]:
        """The scope in which `transform` runs."""

    def whole_state(self) -> PyTree:
        """The state of `transform`, also if it is divided between devices."""

    def state_shapes(self) -> PyTree:
        """The shapes and types of that."""


def state_dict(learner: SavedLearner) -> LearnerState | UserState:
    """The state of a learner that a checkpoint stores: everything that training changes, or the user's own dict.

    Errors: TypeError if that is not a dict.
    """
    if learner.custom_checkpoint is None:
        return core_state_dict(learner)
    state = learner.custom_checkpoint.create_checkpoint()
    if not isinstance(state, LearnerState | Mapping):
        raise TypeError(explain(
            f"{learner!r}: create_checkpoint returned {state!r}", fix="return a dict of numbers, texts and arrays"
        ))
    return state if isinstance(state, LearnerState) else unwrap_values(state)


def decode_optax_state(learner: SavedLearner, state: LearnerState | UserState) -> PyTree:
    """The optax state in a checkpoint, for `load_state`.

    Errors: ValueError if the checkpoint is of a learner of other parameters or of another kind.
    """
    return decode_core_optax_state(learner, state) if learner.custom_checkpoint is None else None


def load_state(learner: SavedLearner, state: LearnerState | UserState, optax_state: PyTree) -> None:
    """Load the state of a checkpoint into a learner. This cannot fail, unless the user's code does.

    The schedule of the learning rate is the checkpoint's; momentum and other options stay those of this learner.
    """
    if learner.custom_checkpoint is None:
        load_core_state(learner, state, optax_state)  # type: ignore[arg-type]
    else:
        learner.custom_checkpoint.restore_from_checkpoint(state)  # type: ignore[arg-type]
    if isinstance(learner.strategy, BlockMomentum):  # a user's own dict has no place for blocks
        stored = state if isinstance(state, LearnerState) else None
        learner.strategy.load_state(
            stored.all_workers_samples or 0 if stored else 0, stored.block_gradients if stored else None
        )


def core_state_dict(learner: SavedLearner) -> LearnerState:
    """As `state_dict`, without regard to the user's own checkpoints."""
    counters, schedule, parameters = learner.counters, learner.rate_schedule, learner.parameters
    strategy = learner.strategy
    blocks = strategy if isinstance(strategy, BlockMomentum) else None
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.whole_state() if learner.saves_state else ())]
    fields, fits = _fields(learner, leaves)
    extra = [np.asarray(v.value) for v in learner.extra_variables]
    return LearnerState(
        samples=counters.samples,
        minibatches=counters.minibatches,
        sweeps=counters.sweeps,
        rates=Rates(
            schedule.entries,
            schedule.epoch_size,
            schedule.minibatch_size,
            counters.rate_samples if schedule.epoch_size else counters.rate_sweeps,
        ),
        smoothed_gradients=[pack_state(arrays, p.dtype) for arrays, p in zip(fields, parameters, strict=True)],
        smoothed_count=counters.smoothed,
        noise_seed=learner.noise_seed,
        all_workers_samples=_all_workers_samples(learner),
        block_gradients=None if blocks is None else blocks.smoothed_gradients([p.value for p in parameters]),
        other_state=extra if fits else [leaf.astype(np.float64) for leaf in leaves],
    )


def _all_workers_samples(learner: SavedLearner) -> int | None:
    if isinstance(learner.strategy, BlockMomentum):
        return learner.strategy.state.value.samples_seen
    return None if learner.strategy is None else learner.counters.samples


def decode_core_optax_state(learner: SavedLearner, state: object) -> PyTree:
    """As `decode_optax_state`, without regard to the user's own checkpoints."""
    if not isinstance(state, LearnerState):
        raise ValueError(
            f"{learner!r}: the checkpoint has the state of another kind of learner: {state!r}; "
            "restore it into the kind of learner that was saved"
        )
    if len(state.smoothed_gradients) != len(learner.parameters):
        raise ValueError(
            f"{learner!r} has {len(learner.parameters)} parameters, but in the checkpoint the learner has "
            f"{len(state.smoothed_gradients)}; make it with the parameters of the one that was saved"
        )
    if not learner.saves_state:
        _check_extra(learner, state)
        return learner.optax_cell.value
    leaves, tree = jax.tree.flatten(learner.state_shapes())
    fields, fits = _fields(learner, leaves)
    if fits:
        arrays = _split(learner, state, fields)
    elif [np.shape(a) for a in state.other_state] == [np.shape(leaf) for leaf in leaves]:
        arrays = state.other_state
    else:
        raise ValueError(
            f"{learner!r}: the checkpoint has the state of another kind of learner; restore it into the "
            "kind of learner that was saved"
        )
    with learner.precision():
        return jax.tree.unflatten(
            tree, [jax.numpy.array(a, leaf.dtype) for a, leaf in zip(arrays, leaves, strict=True)]
        )


def _split(learner: SavedLearner, state: LearnerState, fields: list[list[Array]]) -> list[np.ndarray]:
    """The leaves of the optax state, from the arrays that CNTK joins for each parameter."""
    parts = [
        unpack_state(stored, len(arrays), tuple(p.shape), f"{learner!r}, parameter {p.name or p.uid!r}")
        for stored, arrays, p in zip(state.smoothed_gradients, fields, learner.parameters, strict=True)
    ]
    return [part[i] for i in range(len(fields[0])) for part in parts]


def _check_extra(learner: SavedLearner, state: LearnerState) -> None:
    """Check that the state is of a learner with variables of these shapes, or of CNTK, which saves none of them."""
    shapes = [tuple(v.shape) for v in learner.extra_variables]
    if state.other_state and [a.shape for a in state.other_state] != shapes:
        raise ValueError(
            f"{learner!r}: the checkpoint has the state of a learner that keeps other variables; "
            "restore it into a learner with the same graph"
        )


def load_core_state(learner: SavedLearner, state: LearnerState, optax_state: PyTree) -> None:
    """As `load_state`, without regard to the user's own checkpoints."""
    rates = state.rates
    learner.optax_cell.value = optax_state
    for variable, value in zip(learner.extra_variables, state.other_state, strict=False):  # CNTK's files have none
        variable.value = value
    learner.rate_schedule = TrainingParameterSchedule(
        list(rates.entries), rates.epoch_size or None, rates.minibatch_size
    )
    learner.noise_seed = state.noise_seed
    start = {"rate_samples" if rates.epoch_size else "rate_sweeps": rates.start}
    learner.counters_cell.value = replace(
        Counters(state.samples, state.minibatches, state.sweeps, smoothed=state.smoothed_count or 0.0), **start
    )


def _fields(learner: SavedLearner, leaves: Sequence[T]) -> tuple[list[list[T]], bool]:
    """For each parameter its arrays in the optax state; and whether the whole state consists of such arrays.

    An optax chain with other state does not fit CNTK's layout.
    """
    parameters = learner.parameters
    count = len(parameters)
    fits = len(leaves) % count == 0 and all(
        np.shape(leaf) == tuple(parameters[i % count].shape) for i, leaf in enumerate(leaves)
    )
    return [list(leaves[i::count]) if fits else [] for i in range(count)], fits
