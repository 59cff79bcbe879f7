"""The trainer: takes steps, keeps count, reports progress, saves and restores."""

from __future__ import annotations

import itertools
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..device import use_default_device
from ..engine.debug.timing import table
from ..engine.lower.carry import Memory
from ..engine.train.loss_scale import LossScale
from ..engine.train.step import Options, Outcome, PendingGradients, Step
from ..eval.evaluator import Evaluating, Evaluator, as_function, by_variable, feeds
from ..graph.errors import explain
from ..graph.proxy import delegates_to, unwrap
from ..io import MinibatchData
from ..learners import Learner, UserLearner
from ..logging import ProgressWriter, TraceLevel, get_trace_level
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function
from . import _checkpoint
from ._distributed_training import DistributedTraining
from ._progress import Seen


class _Loss:
    """The loss of a minibatch, on the device until somebody reads it. The first NaN that is read gives a warning."""

    def __init__(self, value: Any, minibatch: int, reported: list[int]) -> None:
        self._value, self._minibatch, self._reported = value, minibatch, reported

    def __float__(self) -> float:
        value = float(self._value)
        if math.isnan(value) and not self._reported:
            self._reported.append(self._minibatch)
            warnings.warn(
                f"the loss of minibatch {self._minibatch} is NaN; training goes on. "
                "debugging.set_checked_mode(True) stops it, and names the operation where it began",
                RuntimeWarning, stacklevel=3,
            )
        return value


class Training(Evaluating):
    """What stands behind a `Trainer`, with its arguments."""

    def __init__(
        self, model: Any, criterion: Any, parameter_learners: Any, progress_writers: Any, accumulate: int,
        precision: str | None, rematerialize: bool,
    ) -> None:
        loss, metric = _criteria(criterion)
        self._loss, self._loss_function = as_variable(loss), as_function(loss)
        super().__init__(metric, progress_writers)
        self._model = None if model is None else as_function(model)
        self._parameter_learners = tuple(as_list(parameter_learners))
        _check_learners(self._parameter_learners, self._parameters())
        self.learners = [unwrap(learner) for learner in self._parameter_learners]
        for learner in self.learners:
            learner.add_progress_writers(self._writers)
        self._steps: dict[tuple[Any, ...], Step] = {}
        self.memory, self.options = Memory(), _options(
            accumulate, precision, rematerialize, self._parameter_learners
        )
        self.pending = PendingGradients(scale=LossScale.initial() if precision == "float16" else None)
        self._previous: Outcome | None = None
        self.together = DistributedTraining(self.learners, accumulate)
        self._checkpoints: Any = None
        self._reported: list[int] = []
        self.seen = Seen()

    def _parameters(self) -> list[Any]:
        of = (self._model, self.loss_function, self.evaluation_function)
        return list(dict.fromkeys(p for function in of if function is not None for p in function.parameters))

    # ---- what it trains
    @property
    def model(self) -> Function | None:
        """The model."""
        return self._model

    @property
    def loss_function(self) -> Function:
        """The loss."""
        return self._loss_function

    @property
    def parameter_learners(self) -> tuple[Any, ...]:
        """The learners."""
        return self._parameter_learners

    # ---- steps
    def train_minibatch(
        self, arguments: Any, outputs: Any = None, device: Any = None, is_sweep_end: bool | None = None
    ) -> Any:
        """Take one step; True if anything was trained (False for an empty minibatch, or if all learning rates are 0).

        `arguments`: {variable: array, list of sequences, sparse matrix, or minibatch of a reader}.
        `outputs`: what values are wanted of: then the result is a pair (trained, {output: value}).
        `is_sweep_end`: overrides what a reader's minibatch says.

        The step is not waited for: losses are fetched when they are read.
        """
        fed = by_variable(arguments, self._loss)
        wanted = as_list(outputs) if outputs else []
        if not fed and not self.together.shares(self.seen.samples):
            return self._nothing(wanted)
        if is_sweep_end is None:
            is_sweep_end = any(getattr(d, "end_of_sweep", False) for d in fed.values())
        step = self._step([as_variable(v) for v in wanted])
        number = self.seen.minibatches + 1
        outcome = self._take(step, fed, number)
        total = self.together.total(outcome.samples, self.seen.samples)
        if not total:
            return self._nothing(wanted)
        is_sweep_end = self.together.any(bool(is_sweep_end), self.seen.samples)
        outcome = replace(outcome, loss=_Loss(outcome.loss, number, self._reported))
        self.pending.ends_sweep |= is_sweep_end
        trained, seen = True, self.seen
        if outcome.learned:
            ends, self.pending.ends_sweep = self.pending.ends_sweep, False
            taken = [learner.advance(outcome.learned, ends) for learner in self.learners]
            trained = any(taken)
        self._previous = outcome if outcome.samples else None
        if trained:
            self.seen = Seen(seen.samples + total, seen.minibatches + 1, seen.sweeps + is_sweep_end)
            self.together.end_blocks(total, seen.samples, self.seen.samples)
        for writer in self._writers if outcome.samples else ():
            metric = 0.0 if outcome.metric is None else outcome.metric
            unwrap(writer).update_training(outcome.samples, outcome.loss, metric)
        values = {key: r.numpy() for key, r in zip(wanted, outcome.outputs, strict=True)}
        return (trained, values) if wanted else trained

    def _nothing(self, wanted: list[Any]) -> Any:
        """What an empty minibatch gives, of all workers: at the end of the data they go on with one model."""
        self.together.merge()
        self._previous = None
        return (False, {}) if wanted else False

    def _take(self, step: Step, fed: Mapping[Any, Any], number: int) -> Outcome:
        """A step, of all workers together if that is how the learners learn."""
        self.together.begin_blocks()
        all_reduce = self.together.all_reduce(self.seen.samples)
        if fed:
            return step.run(feeds(step, fed), number, all_reduce)
        return Outcome(0.0, 0.0, 0, []) if all_reduce is None else step.reduce_and_update(all_reduce)

    def _step(self, outputs: Sequence[Any]) -> Step:
        key = tuple(outputs)
        if key not in self._steps:
            criteria = [self._loss] if self._metric is None else [self._loss, self._metric]
            self._steps[key] = Step(
                criteria, outputs, self.learners, self.memory, self.options, self.pending
            )
        return self._steps[key]

    # ---- figures
    def _last(self) -> Outcome:
        if self._previous is None:
            raise RuntimeError("no figures: there was no preceding call to train_minibatch, or its minibatch was empty")
        return self._previous

    @property
    def previous_minibatch_loss_average(self) -> float:
        """Average loss of the last minibatch; waits for it."""
        return float(self._last().loss) / self._last().samples

    @property
    def previous_minibatch_evaluation_average(self) -> float:
        """Average metric of the last minibatch; waits for it. ValueError if there is no metric."""
        if self._metric is None:
            raise ValueError("there is no evaluation criterion: no evaluation function was given to this trainer")
        return float(self._last().metric) / self._last().samples

    @property
    def previous_minibatch_sample_count(self) -> int:
        """Samples in the last minibatch; 0 if it was empty, or there was none."""
        return 0 if self._previous is None else self._previous.samples

    @property
    def total_number_of_samples_seen(self) -> int:
        """Samples trained on so far."""
        return self.seen.samples

    def total_number_of_units_seen(self, unit: int = 1) -> int:
        """Samples, minibatches or sweeps trained on so far, as the ``DataUnit`` says.

        Errors: RuntimeError for another unit.
        """
        counts = self.seen.sweeps, self.seen.samples, self.seen.minibatches  # by the numbers of CNTK's DataUnit
        if unit not in range(len(counts)):
            raise RuntimeError(f"total_number_of_units_seen: there is no unit of data {unit!r}; see train.DataUnit")
        return counts[unit]

    # ---- progress
    def begin_session(self, total_samples: int | None) -> None:
        """Let the progress writers know how many samples there will be in all, if there is a limit."""
        for writer in self._writers:
            if isinstance(writer, ProgressWriter):  # others need only have the methods that CNTK calls
                unwrap(writer).begin_session(self.seen.samples, total_samples)

    def print_node_timing(self) -> None:
        """Print how long each operation took on average, forward and backward; see ``debugging.set_node_timing``."""
        print(table([self.loss_function, *filter(None, [self.evaluation_function])]))

    def summarize_training_progress(self) -> None:
        """Let the progress writers report what was trained since the last summary."""
        for writer in self._writers:
            unwrap(writer).write_training_summary()

    # ---- checkpoints
    def save_checkpoint(self, filename: str, external_state: Mapping[str, Any] = {}, *, wait: bool = True) -> None:
        """Write the model and, beside it with the suffix '.ckp', all that is needed to go on.

        The files are whole or as before, even if the process is killed on the way. `wait=False` returns as soon as the
        state is copied: the files are written in the background.

        Errors: TypeError for an external state that cannot be kept; OSError if the files cannot be written, in the
                background by the next call that saves, restores or waits.
        """
        self._writer().write(self, os.fspath(filename), dict(external_state), wait)

    def wait_for_checkpoint(self) -> None:
        """Wait until the last checkpoint is written. Errors: OSError if it could not be."""
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def _writer(self) -> _checkpoint.Writer:
        self._checkpoints = self._checkpoints or _checkpoint.Writer()
        return self._checkpoints

    def restore_from_checkpoint(self, filename: str) -> dict[str, Any]:
        """Go on from a checkpoint; returns the external state that was saved with it.

        Errors: what reading a damaged file or one of another model raises; the trainer is then as it was.
        """
        self.wait_for_checkpoint()
        return _checkpoint.restore(self, os.fspath(filename))


@delegates_to(Training)
class Trainer(Training, Evaluator):
    """Trains a model by minibatches.

    `criterion`: the loss, or (loss, metric), or a function with these two outputs; the metric may be None.
    `parameter_learners`: one learner or several with disjoint parameters; what none covers stays as it is.

    What CNTK never had:

    `accumulate`: learners take a step for so many minibatches together, with the sum of their gradients, as if they had
    been one minibatch. Between steps their counts stand still.
    `precision`: 'bfloat16' or 'float16' for the type in which products with weights are computed. Parameters and all
    else stay as they are, in single precision. With float16 the loss is scaled so that small gradients are not lost,
    and a step whose gradients overflow is left out.
    `rematerialize`: most values are computed again for the backward pass instead of being kept; it takes longer, in
    less memory.

    Units: losses and metrics are reported as averages over samples.
    Errors: ValueError if there is no learner, or two cover the same parameter; or for options that cannot be.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(1)
    >>> z = C.times(x, C.parameter((2, 1)))
    >>> trainer = Trainer(z, C.squared_error(z, y), C.sgd(z.parameters, lr=0.1))
    >>> trainer.train_minibatch({x: [[1, 2]], y: [[3]]})
    True
    >>> round(trainer.previous_minibatch_loss_average, 6), trainer.total_number_of_samples_seen
    (9.0, 1)
    """

    def __init__(
        self, model: Any, criterion: Any, parameter_learners: Any, progress_writers: Any = None, *,
        accumulate: int = 1, precision: str | None = None, rematerialize: bool = False,
    ) -> None:
        self.__wrapped__ = Training(
            model, criterion, parameter_learners, progress_writers, accumulate, precision, rematerialize
        )

    @staticmethod
    def _get_loss_metric(criterion: Any) -> tuple[Function, Function | None]:
        """Loss and metric of a criterion: scripts call it."""
        loss, metric = _criteria(criterion)
        return as_function(loss), None if metric is None else as_function(metric)


def _criteria(criterion: Any) -> tuple[Any, Any]:
    if isinstance(criterion, (tuple, list)):
        found = list(criterion)
    else:
        found = list(criterion.outputs) if isinstance(criterion, Function) else [criterion]
    if found[:1] == [None]:
        raise TypeError("criterion has to be a loss, or (loss, metric); there is no loss")
    if not 1 <= len(found) <= 2:
        raise ValueError(f"criterion has to be a loss, or (loss, metric); got {len(found)} values")
    loss, metric = itertools.islice(itertools.chain(found, [None]), 2)
    return loss, metric


def _options(accumulate: int, precision: str | None, rematerialize: bool, learners: Sequence[Any]) -> Options:
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ValueError(f"accumulate is a number of minibatches, at least 1, not {accumulate!r}")
    if precision not in (None, "bfloat16", "float16"):
        raise ValueError(f"precision is 'bfloat16', 'float16', or None for that of the model, not {precision!r}")
    if precision == "float16" and any(isinstance(learner, UserLearner) for learner in learners):
        raise ValueError("a UserLearner takes every step, also one that overflows in float16: use 'bfloat16'")
    return Options(accumulate, precision, bool(rematerialize))


def _check_learners(learners: Sequence[Any], parameters: Sequence[Any]) -> None:
    if not learners:
        raise ValueError("There must be at least one learner.")
    seen: dict[Any, Any] = {}
    for learner in learners:
        if not isinstance(learner, Learner):
            raise TypeError(f"a Trainer needs a learner or a list of learners, not {learner!r}")
        for p in unwrap(learner).parameters:
            if p in seen:
                raise ValueError(explain(f"{p!r} is covered by 2 different learners", {"parameter": p}))
            seen[p] = learner
    known = set(parameters)
    if strange := [p for p in seen if p not in known]:
        raise ValueError(f"{len(strange)} of the learners' parameters is not part of the model: {_names(strange)}")
    if (left_out := [p for p in parameters if p not in seen]) and get_trace_level() != TraceLevel.Error:
        said = f"no learner covers {len(left_out)} of the model's parameters, which will not be learned"
        print(f"Trainer: {said}: {_names(left_out)}", file=sys.stderr)


def _names(parameters: Sequence[Any]) -> str:
    more = ", ..." if len(parameters) > 5 else ""
    return ", ".join(repr(p.name or p.uid) for p in parameters[:5]) + more


__all__ = ["MinibatchData", "Trainer", "use_default_device"]
