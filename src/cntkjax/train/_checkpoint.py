"""Saving and restoring a trainer, in CNTK's files: the model's, and beside it the state of learners and trainer."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..formats import checkpoint, model
from ..graph.axis import ALL_AXES
from ..graph.build import apply
from ..learners._checkpoint import adopt, optax_state, state_of
from ..primitives import BY_NAME
from .trainer import Seen

if TYPE_CHECKING:
    from ..ops.functions import Function
    from .trainer import Trainer


class Writer:
    """Writes one checkpoint at a time in the background."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint")  # its thread starts when it is first needed
        self._last: Future[None] | None = None

    def write(self, trainer: Trainer, filename: str, external_state: dict[str, Any], wait: bool) -> None:
        """Writes `filename` and `filename.ckp`; both appear, or none of them.

        Returns when the state is copied, or with `wait`, when the files are there. Errors: TypeError for an external
        state that cannot be kept; what went wrong with this checkpoint, if waited for, or else with the last one.
        """
        learners = [state_of(learner) for learner in trainer.parameter_learners]
        files = checkpoint.encode(_everything(trainer), checkpoint.Checkpoint(learners, external_state))
        self.wait()
        if wait:
            checkpoint.write(filename, files)
        else:
            self._last = self._pool.submit(checkpoint.write, filename, files.copied())

    def wait(self) -> None:
        """Waits until the last checkpoint is written. Errors: what went wrong with it."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


def restore(trainer: Trainer, filename: str) -> dict[str, Any]:
    """Makes the trainer go on from these files; the external state saved with it. On an error nothing changes."""
    stored = checkpoint.load(filename)
    learners = trainer.parameter_learners
    if len(stored.learners) != len(learners):
        raise ValueError(f"the trainer has {len(learners)} learners, but {filename!r} is of {len(stored.learners)}")
    states = [optax_state(learner, state) for learner, state in zip(learners, stored.learners, strict=True)]
    model.restore(_everything(trainer), filename)
    for learner, state, optax in zip(learners, stored.learners, states, strict=True):
        adopt(learner, state, optax)
    last = max(stored.learners, key=lambda state: state.samples)
    trainer.seen = Seen(last.samples, last.minibatches, last.sweeps)
    return stored.external


def _everything(trainer: Trainer) -> Function:
    """All that the trainer computes, as CNTK's checkpoints have it: the model, the loss, the metric, and their sums."""
    outputs: list[Any] = [] if trainer.model is None else list(trainer.model.outputs)
    criteria = {"aggregateLoss": trainer.loss_function, "aggregateEvalMetric": trainer.evaluation_function}
    for name, criterion in criteria.items():
        if criterion is not None:
            sum_of_all = {"axis": ALL_AXES, "reductionOpName": "Sum", "reductionKeepDimensions": False}
            total = apply(BY_NAME["ReduceElements"], [criterion.output], sum_of_all, name)
            outputs += [criterion.output, total.outputs[0]]
    return apply(BY_NAME["Combine"], outputs)  # type: ignore[return-value]
