"""Saving and restoring a trainer, in CNTK's files: the model's, and beside it the state of learners and trainer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from ..engine.lower.carry import Carried, Memory
from ..engine.lower.rows import Rows
from ..engine.run.handover import STATE, assign, settle
from ..engine.train.loss_scale import LossScale
from ..engine.train.state import Accumulated
from ..engine.train.step import StepOptions
from ..engine.xla.background import Background
from ..formats import checkpoint, model
from ..formats.dictionary import FormatError, decode, encode
from ..graph.axis import ALL_AXES, Axis
from ..graph.build import apply
from ..graph.cells import Cell, commit
from ..graph.function import nodes
from ..learners._checkpoint import decode_optax_state, load_state, state_dict
from ..learners._learner import LearnerCore
from ..ops.functions import Function
from ..parallel import workers
from ..primitives import BY_NAME
from ._distributed_training import DistributedTraining
from ._progress import Progress, Training

_EXTERNAL, _INTERNAL = "external_worker_state", "internal_worker_state"
_ERRORS = "quantization_errors_of_last_axes"  # not the name of those that were of other columns once

Record = dict[str, Any]


class TrainerState(Protocol):
    """What a checkpoint saves and restores of a trainer; `TrainerCore` provides it."""

    learners: list[LearnerCore]
    distributed: DistributedTraining
    memory: Memory
    options: StepOptions
    pending: Cell[Accumulated]
    training: Cell[Training]
    turn: AbstractContextManager[Any]

    @property
    def progress(self) -> Progress:
        """How far training has come."""

    @property
    def model(self) -> Function | None:
        """The model, if there is one besides the criteria."""

    @property
    def loss_function(self) -> Function:
        """The loss."""

    @property
    def evaluation_function(self) -> Function | None:
        """The metric, if there is one."""


class CheckpointWriter:
    """Writes one checkpoint at a time in the background."""

    def __init__(self) -> None:
        self._background = Background("cntkjax-checkpoint", finishes=True)
        self._last: Future[None] | None = None
        self._writing = threading.RLock()

    def write(self, trainer: TrainerState, filename: str, external_state: Record, wait: bool) -> None:
        """Write `filename` and `filename.ckp`; either both appear, or none. Nothing changes if they cannot be written.

        Returns when the state is copied, or with `wait`, when the files are written. Errors: TypeError for an external
        state that cannot be stored; OSError if writing fails: of this checkpoint with `wait`, or else of the last one.
        """
        if not trainer.distributed.has_others:
            checkpoint.check_path(filename)
        with trainer.turn:
            trainer.distributed.merge()
            with STATE:
                settle()
                learners, everything = [state_dict(learner) for learner in trainer.learners], _combined(trainer)
                extra: Record = {"seen": asdict(trainer.progress)} | _pending_record(trainer)
                errors = trainer.distributed.quantization_errors()
                extra |= {_ERRORS: errors} if errors else {}
                extra |= _memory_record(trainer, everything)
                assign(trainer.memory.streams.store)
            states = _by_worker(external_state) if trainer.distributed.has_others else {}
            files = checkpoint.encode(everything, checkpoint.Checkpoint(learners, external_state, states, extra))
        with self._writing:
            self.wait()
            if trainer.distributed.has_others:
                _write_on_worker_0(filename, files)
            elif wait:
                checkpoint.write(filename, files)
            else:
                self._last = self._background.submit(checkpoint.write, filename, files.copied())

    def wait(self) -> None:
        """Wait until the last checkpoint is written. Errors: those of writing it."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


def _by_worker(external_state: Record) -> Record:
    states = workers.gather("save_checkpoint", encode(external_state)).wait()
    return {str(i): {_EXTERNAL: decode(state), _INTERNAL: {}} for i, state in enumerate(states)}  # CNTK reads both


def _write_on_worker_0(filename: str, files: checkpoint.Files) -> None:
    """Worker 0 writes; the others wait for it, and raise its error too."""
    problem = None
    try:
        if workers.rank() == 0:
            checkpoint.write(filename, files)
    except OSError as error:
        problem = error
    message = workers.gather("the end of save_checkpoint", str(problem or "").encode()).wait()[0].decode()
    if message:
        raise problem or OSError(f"worker 0 could not write the checkpoint: {message}")


def restore(trainer: TrainerState, filename: str) -> Record:
    """Load the state in these files into a trainer; returns the external state. On an error nothing changes."""
    stored, stored_model = checkpoint.load_with_model(filename)
    learners = trainer.learners
    if len(stored.learners) != len(learners):
        raise ValueError(
            f"the trainer has {len(learners)} learners, but {filename!r} is of {len(stored.learners)}: make the "
            "trainer with the same learners as the one that was saved"
        )
    states = [decode_optax_state(learner, state) for learner, state in zip(learners, stored.learners, strict=True)]
    everything = _combined(trainer)
    try:
        memory = _memory_of(stored.extra, everything)
        pending, ends_sweep = _pending_of(stored.extra, trainer)
        progress = Progress(**stored.extra["seen"]) if stored.extra else _progress_of(stored.learners)
        training = trainer.training.value._replace(progress=progress, ends_sweep=ends_sweep)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        file = f"{filename}{checkpoint.SUFFIX}"
        reason = f"what is kept for the next step is damaged: {error!r}; restore another checkpoint"
        raise FormatError(f"{file}: {reason}") from error
    pairs = model.pairs_of(everything, stored_model)

    def store() -> None:
        model.restore_pairs(pairs)
        trainer.memory.streams.restart()
        for learner, state, optax_state in zip(learners, stored.learners, states, strict=True):
            if learner.custom_checkpoint is None:
                load_state(learner, state, optax_state)
        now = training._replace(learned=learners[0].counters.samples if learners else 0)
        commit({trainer.memory.carried: memory, trainer.pending: pending, trainer.training: now})
        trainer.distributed.restore_quantization_errors(list(stored.extra.get(_ERRORS, [])))

    assign(store)
    for learner, state, optax_state in zip(learners, stored.learners, states, strict=True):
        if learner.custom_checkpoint is not None:  # the user's code, which may fail
            load_state(learner, state, optax_state)
    return stored.workers.get(str(workers.rank()), {}).get(_EXTERNAL, stored.external)


def _progress_of(learners: Sequence[object]) -> Progress:
    """The progress of the learner that is furthest, for files of CNTK's; users' classes do not store theirs."""
    last = max(
        (state for state in learners if isinstance(state, checkpoint.LearnerState)), key=lambda state: state.samples,
        default=None,
    )
    if last is None:
        return Progress()
    samples = last.samples if last.all_workers_samples is None else last.all_workers_samples
    return Progress(samples, last.minibatches, last.sweeps)


# ---- state carried between minibatches by sequences that are cut, by number of the delay and of the sequence axis


def _memory_record(trainer: TrainerState, everything: Function) -> Record:
    memory, delays, axes = trainer.memory.carried.value, *_nodes_and_axes(everything)
    if not memory.last:
        return {}
    values = {delays.index(node): np.asarray(value) for node, value in memory.values.items()}
    slots = {axes.index(axis): last for axis, last in memory.last.items()}
    return {
        "carried": {str(n): {"type": v.dtype.name, "value": _storable(v)} for n, v in values.items()},
        "slots": {str(n): {str(slot): i for slot, i in last.items()} for n, last in slots.items()},
    }


def _memory_of(extra: Record, everything: Function) -> Carried:
    delays, axes = _nodes_and_axes(everything)
    values = {delays[int(n)]: v["value"].astype(v["type"]) for n, v in extra.get("carried", {}).items()}
    slots = {axes[int(n)]: {int(k): i for k, i in last.items()} for n, last in extra.get("slots", {}).items()}
    return Carried(values, slots)


def _nodes_and_axes(everything: Function) -> tuple[list[Any], list[Axis]]:
    axes = dict.fromkeys(a for v in everything.arguments for a in v.dynamic_axes if a.is_sequence_axis)
    return list(nodes([everything.root_function], into_blocks=True)), list(axes)


def _storable(array: np.ndarray) -> np.ndarray:
    return array if array.dtype in (np.float32, np.float64, np.float16) else array.astype(np.float32)


# ---- gradients that are still accumulated, and the scale of the loss


def _pending_record(trainer: TrainerState) -> Record:
    pending = trainer.pending.value
    record: Record = {}
    if pending.scale is not None:
        record["loss_scale"] = [float(pending.scale.factor), int(pending.scale.steps)]
    if pending.minibatches:
        gradients = [[_gradient_record(g) for g in group] for group in pending.gradients or ()]
        record["unfinished"] = {
            "samples": pending.samples, "minibatches": pending.minibatches,
            "ends_sweep": trainer.training.value.ends_sweep, "gradients": gradients,
        }
    return record


def _pending_of(extra: Record, trainer: TrainerState) -> tuple[Accumulated, bool]:
    """The pending gradients, and whether they end a sweep; none of a trainer with other options."""
    scale = trainer.pending.value.scale
    if scale is not None and "loss_scale" in extra:
        factor, steps = extra["loss_scale"]
        scale = LossScale(np.float32(factor), np.int32(steps))
    stored = extra.get("unfinished", {})
    if not 0 < stored.get("minibatches", 0) < trainer.options.accumulate:
        return Accumulated(scale=scale), False
    gradients = [[_gradient_of(g) for g in group] for group in stored["gradients"]]
    return Accumulated(gradients, stored["samples"], stored["minibatches"], scale), stored["ends_sweep"]


def _gradient_record(gradient: Any) -> np.ndarray | Record:
    if not isinstance(gradient, Rows):
        return np.asarray(gradient)
    indices = np.asarray(gradient.indices, np.float64)  # CNTK's format has no integers of 32 bits
    return {"indices": indices, "values": np.asarray(gradient.values), "height": gradient.height}


def _gradient_of(record: np.ndarray | Mapping[str, Any]) -> np.ndarray | Rows:
    if isinstance(record, np.ndarray):
        return record
    return Rows(record["indices"].astype(np.int32), record["values"], record["height"])


def _combined(trainer: TrainerState) -> Function:
    """The graph that CNTK's checkpoints contain: a Combine of the model, the loss, the metric, and their sums."""
    outputs: list[Any] = [] if trainer.model is None else list(trainer.model.outputs)
    criteria = {"aggregateLoss": trainer.loss_function, "aggregateEvalMetric": trainer.evaluation_function}
    for name, criterion in criteria.items():
        if criterion is not None:
            attributes = {"axis": ALL_AXES, "reductionOpName": "Sum", "reductionKeepDimensions": False}
            total = apply(BY_NAME["ReduceElements"], [criterion.output], attributes, name)
            outputs += [criterion.output, total.outputs[0]]
    return apply(BY_NAME["Combine"], outputs)  # type: ignore[return-value]
