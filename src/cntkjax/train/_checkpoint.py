"""Saving and restoring a trainer, in CNTK's files: the model's, and beside it the state of learners and trainer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.lower.rows import Rows
from ..engine.train.loss_scale import LossScale
from ..engine.train.step import PendingGradients
from ..formats import checkpoint, model
from ..formats.dictionary import FormatError
from ..graph.axis import ALL_AXES
from ..graph.build import apply
from ..graph.function import nodes
from ..learners._checkpoint import adopt, optax_state, state_of
from ..parallel import mpi
from ..primitives import BY_NAME
from ._progress import Seen

if TYPE_CHECKING:
    from ..ops.functions import Function
    from .trainer import Training

_EXTERNAL = "external_worker_state"


class Writer:
    """Writes one checkpoint at a time in the background."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint")  # its thread starts when it is first needed
        self._last: Future[None] | None = None

    def write(self, trainer: Training, filename: str, external_state: dict[str, Any], wait: bool) -> None:
        """Writes `filename` and `filename.ckp`; both appear, or none of them.

        Returns when the state is copied, or with `wait`, when the files are there. Errors: TypeError for an external
        state that cannot be kept; what went wrong with this checkpoint, if waited for, or else with the last one.
        """
        together = trainer.together
        together.merge()
        learners, everything = [state_of(learner) for learner in trainer.learners], _everything(trainer)
        own = {"seen": asdict(trainer.seen)} | _unfinished(trainer) | _carried(trainer, everything)
        workers = _by_worker(external_state) if together.has_others else {}
        files = checkpoint.encode(everything, checkpoint.Checkpoint(learners, external_state, workers, own))
        self.wait()
        if together.has_others:
            _main_writes(filename, files)
        elif wait:
            checkpoint.write(filename, files)
        else:
            self._last = self._pool.submit(checkpoint.write, filename, files.copied())

    def wait(self) -> None:
        """Waits until the last checkpoint is written. Errors: what went wrong with it."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


def _by_worker(external_state: dict[str, Any]) -> dict[str, Any]:
    return {str(i): {_EXTERNAL: state} for i, state in enumerate(mpi.gathered(external_state))}


def _main_writes(filename: str, files: checkpoint.Files) -> None:
    """Worker 0 writes; the others wait for it, and learn what went wrong."""
    problem = None
    try:
        if mpi.rank() == 0:
            checkpoint.write(filename, files)
    except OSError as error:
        problem = error
    said = mpi.from_main(None if problem is None else str(problem))
    if said is not None:
        raise problem or OSError(f"worker 0 could not write the checkpoint: {said}")


def restore(trainer: Training, filename: str) -> dict[str, Any]:
    """Makes the trainer go on from these files; the external state saved with it. On an error nothing changes."""
    stored = checkpoint.load(filename)
    learners = trainer.learners
    if len(stored.learners) != len(learners):
        raise ValueError(f"the trainer has {len(learners)} learners, but {filename!r} is of {len(stored.learners)}")
    states = [optax_state(learner, state) for learner, state in zip(learners, stored.learners, strict=True)]
    everything = _everything(trainer)
    try:
        carried = _carried_from(stored.extra, everything)
        pending = _unfinished_from(stored.extra, trainer)
        seen = Seen(**stored.extra["seen"]) if stored.extra else _seen(stored.learners)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        file = f"{filename}{checkpoint.SUFFIX}"
        raise FormatError(f"{file}: what is kept for the next step is damaged: {error!r}") from error
    model.restore(everything, filename)
    trainer.memory.values, trainer.memory.last = carried
    for learner, state, optax in zip(learners, stored.learners, states, strict=True):
        adopt(learner, state, optax)
    trainer.pending.__dict__.update(pending)
    trainer.seen = seen
    return stored.workers.get(str(mpi.rank()), {}).get(_EXTERNAL, stored.external)


def _seen(learners: Sequence[Any]) -> Seen:
    """What the learner has seen that has seen most; users' classes do not say it."""
    last = max(
        (state for state in learners if isinstance(state, checkpoint.LearnerState)), key=lambda state: state.samples,
        default=None,
    )
    if last is None:
        return Seen()
    samples = last.samples if last.all_workers_samples is None else last.all_workers_samples
    return Seen(samples, last.minibatches, last.sweeps)


def _carried(trainer: Training, everything: Function) -> dict[str, Any]:
    """What sequences that are cut between minibatches left behind: by number of the delay, and of the sequence axis."""
    memory, every, axes = trainer.memory, *_nodes_and_axes(everything)
    if not memory.last:
        return {}
    values = {every.index(node): np.asarray(value) for node, value in memory.values.items()}
    slots = {axes.index(axis): last for axis, last in memory.last.items()}
    return {
        "carried": {str(n): {"type": v.dtype.name, "value": _storable(v)} for n, v in values.items()},
        "slots": {str(n): {str(slot): i for slot, i in last.items()} for n, last in slots.items()},
    }


def _carried_from(own: dict[str, Any], everything: Function) -> tuple[dict[Any, Any], dict[Any, Any]]:
    every, axes = _nodes_and_axes(everything)
    values = {every[int(n)]: v["value"].astype(v["type"]) for n, v in own.get("carried", {}).items()}
    slots = {axes[int(n)]: {int(k): i for k, i in last.items()} for n, last in own.get("slots", {}).items()}
    return values, slots


def _unfinished(trainer: Training) -> dict[str, Any]:
    """Gradients that learners are still to get, and the scale of the loss."""
    state = trainer.pending
    record: dict[str, Any] = {}
    if state.scale is not None:
        record["loss_scale"] = [float(state.scale.factor), int(state.scale.steps)]
    if state.minibatches:
        gradients = [[_gradient_record(g) for g in group] for group in state.gradients]
        counts = {"samples": state.samples, "minibatches": state.minibatches, "ends_sweep": state.ends_sweep}
        record["unfinished"] = counts | {"gradients": gradients}
    return record


def _unfinished_from(own: dict[str, Any], trainer: Training) -> dict[str, Any]:
    """The attributes of what is pending. That of a trainer with other options is left out."""
    state = vars(PendingGradients(scale=trainer.pending.scale))
    if trainer.pending.scale is not None and "loss_scale" in own:
        factor, steps = own["loss_scale"]
        state["scale"] = LossScale(np.float32(factor), np.int32(steps))
    stored = own.get("unfinished", {})
    if 0 < stored.get("minibatches", 0) < trainer.options.accumulate:
        state.update(stored, gradients=[[_gradient_of(g) for g in group] for group in stored["gradients"]])
    return state


def _gradient_record(gradient: Any) -> Any:
    if not isinstance(gradient, Rows):
        return np.asarray(gradient)
    indices = np.asarray(gradient.indices, np.float64)  # CNTK's format has no integers of 32 bits
    return {"indices": indices, "values": np.asarray(gradient.values), "height": gradient.height}


def _gradient_of(record: Any) -> Any:
    if isinstance(record, np.ndarray):
        return record
    return Rows(record["indices"].astype(np.int32), record["values"], record["height"])


def _nodes_and_axes(everything: Function) -> tuple[list[Any], list[Any]]:
    axes = dict.fromkeys(a for v in everything.arguments for a in v.dynamic_axes if a.is_sequence_axis)
    return list(nodes([everything.root_function], into_blocks=True)), list(axes)


def _storable(array: np.ndarray) -> np.ndarray:
    return array if array.dtype in (np.float32, np.float64, np.float16) else array.astype(np.float32)


def _everything(trainer: Training) -> Function:
    """All that the trainer computes, as CNTK's checkpoints have it: the model, the loss, the metric, and their sums."""
    outputs: list[Any] = [] if trainer.model is None else list(trainer.model.outputs)
    criteria = {"aggregateLoss": trainer.loss_function, "aggregateEvalMetric": trainer.evaluation_function}
    for name, criterion in criteria.items():
        if criterion is not None:
            sum_of_all = {"axis": ALL_AXES, "reductionOpName": "Sum", "reductionKeepDimensions": False}
            total = apply(BY_NAME["ReduceElements"], [criterion.output], sum_of_all, name)
            outputs += [criterion.output, total.outputs[0]]
    return apply(BY_NAME["Combine"], outputs)  # type: ignore[return-value]
