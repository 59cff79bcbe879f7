"""The trainer: takes training steps, counts them, reports progress, saves and restores checkpoints."""

from __future__ import annotations

import itertools
import math
import os
import reprlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, SupportsFloat

from .._typing import FileName
from .._user_code import warn
from ..device import DeviceDescriptor, use_default_device
from ..engine.debug.timing import timing_table
from ..engine.plan.plan import Plan, check_no_placeholders
from ..engine.run.handover import conclude
from ..engine.train.loss_scale import LossScale
from ..engine.train.sample_counter import with_dynamic_axes
from ..engine.train.state import Accumulated
from ..engine.train.step import Conclusion, ConclusionFor, Outcome, Step, StepOptions, no_conclusion
from ..engine.train.ways import Agreement, Exchange
from ..eval.evaluator import Arguments, Evaluator, EvaluatorCore, as_function, by_variable, dict_text, feeds
from ..graph.arguments import public
from ..graph.build import edits
from ..graph.cells import Cell, Changes
from ..graph.errors import ArgumentError, explain
from ..graph.function import Node
from ..graph.proxy import delegates_to, unwrap
from ..graph.variable import Edge, Leaf
from ..io import MinibatchData
from ..learners import Learner, UserLearner
from ..learners._user import HostLearner
from ..logging import ProgressWriter, TraceLevel, get_trace_level
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function
from ..variables import Variable
from . import _checkpoint, _expected
from ._description import describe
from ._distributed_training import DistributedTraining
from ._progress import Progress, Training
from ._sources import Criterion


class _LazyLoss:
    """The loss of a minibatch, left on the device until it is read. The first NaN that is read raises a warning.

    `nan_minibatches`: where the trainer records the number of that minibatch.
    """

    def __init__(self, value: SupportsFloat, minibatch: int, nan_minibatches: list[int]) -> None:
        self._value, self._minibatch, self._nan_minibatches = value, minibatch, nan_minibatches

    def __float__(self) -> float:
        value = float(self._value)
        if math.isnan(value) and not self._nan_minibatches:
            self._nan_minibatches.append(self._minibatch)
            warn(
                f"the loss of minibatch {self._minibatch} is NaN. To stop at the operation that "
                "produced it, call debugging.set_checked_mode(True)",
                RuntimeWarning,
            )
        return value


class TrainerCore(EvaluatorCore):
    """The implementation of `Trainer`, with its arguments."""

    def __init__(
        self,
        model: Function | Variable | None,
        criterion: Criterion,
        parameter_learners: Learner | Sequence[Learner],
        progress_writers: ProgressWriter | Sequence[ProgressWriter] | None,
        accumulate: int,
        precision: str | None,
        rematerialize: bool,
    ) -> None:
        loss, metric = _criteria(criterion)
        self._loss, self._loss_function = as_variable(loss), as_function(loss)
        super().__init__(metric, progress_writers)
        self._model = None if model is None else as_function(model)
        self.other_metrics: list[Variable] = []  # of which only the sums of the last minibatch are kept
        self._parameter_learners = tuple(as_list(parameter_learners))
        _check_learners(self._parameter_learners, self._parameters())
        if not self._loss_function.arguments and next(with_dynamic_axes(self._loss), None) is None:
            raise ValueError(explain(
                f"Trainer: no variable tells the number of samples of {self._loss_function!r}",
                fix="let it depend on an input, or train by learner.update({parameter: gradient}, samples)",
            ))
        self.learners = [unwrap(learner) for learner in self._parameter_learners]
        self._runs_python = any(learner.runs_python for learner in self.learners)
        for learner in self.learners:
            learner.add_progress_writers(self.writers)
        self._steps: dict[tuple[Variable, ...], tuple[Step, Any]] = {}  # with the structure of its plan
        self.options = _options(accumulate, precision, rematerialize, self._parameter_learners)
        self.pending = Cell(Accumulated(scale=LossScale.initial() if precision == "float16" else None))
        self.training = Cell(Training())
        self.distributed = DistributedTraining(self.learners, accumulate, self._describe)
        self._checkpoint_writer: _checkpoint.CheckpointWriter | None = None
        self.nan_minibatches: list[int] = []
        self.turn: AbstractContextManager[Any] = threading.RLock()  # threads that train, save or restore take turns
        if not self._runs_python and not self.distributed.strategies:
            _expected.add(self)

    def _parameters(self) -> list[Leaf]:
        return list(dict.fromkeys(p for function in self.functions for p in function.parameters))

    @property
    def functions(self) -> list[Function]:
        """The model, the loss and the metric, as far as there are any."""
        return [f for f in (self._model, self._loss_function, self.evaluation_function) if f is not None]

    @property
    def progress(self) -> Progress:
        """How far training has come: as far as its first learner, if that has learned elsewhere since, or was restored
        alone, as in CNTK."""
        training = self.training.value
        seen = self.learners[0].counters if self.learners else None
        if seen is None or seen.samples == training.learned:
            return training.progress
        return Progress(seen.samples, seen.minibatches, seen.sweeps)

    def _describe(self) -> dict[str, str]:
        """What the workers that train together have to agree in, by feature."""
        return describe(self.functions, self.learners)

    # ---- what it trains
    @property
    def model(self) -> Function | None:
        """The function that is trained; None if the trainer was made with a criterion only."""
        return self._model

    @property
    def loss_function(self) -> Function:
        """The function that is minimized."""
        return self._loss_function

    @property
    def parameter_learners(self) -> tuple[Learner, ...]:
        """The learners that update the parameters."""
        return self._parameter_learners

    # ---- steps
    def train_minibatch(
        self,
        arguments: Arguments,
        outputs: Any = None,
        device: DeviceDescriptor | None = None,
        is_sweep_end: bool | None = None,
    ) -> Any:
        """Take one step; True if anything was trained (False for an empty minibatch, or if all learning rates are 0).
        With block momentum it is True even then, since models are merged.

        `arguments`: {variable: array, list of sequences, sparse matrix, or minibatch of a reader}.
        `outputs`: functions or variables to be evaluated too: then the result is a pair (trained, {output: value}).
        `is_sweep_end`: overrides what a reader's minibatch says.

        Shapes: an array is [samples, *shape of the variable], of a sequence [steps, *shape].
        Errors: ValueError for a missing argument or one of another shape; nothing has changed then.

        Returns before the step has finished on the device: losses are fetched when they are read.
        """
        with self.turn:
            requested = [] if outputs is None else as_list(outputs)
            if not all(isinstance(v, (Edge, Node)) for v in requested):
                data = dict_text(as_function(self._loss).arguments)
                raise ArgumentError(explain(
                    f"outputs are functions and variables to evaluate, which {reprlib.repr(outputs)} is not",
                    fix=f"pass the data of all arguments as one dict: train_minibatch({data})",
                ))
            minibatch = by_variable(arguments, self._loss, [*self.functions, *requested])
            return self._train_minibatch(minibatch, requested, is_sweep_end)

    def _train_minibatch(self, minibatch: dict[Any, Any], requested: Sequence[Any], is_sweep_end: bool | None) -> Any:
        if not minibatch and not self.distributed.is_sharded(self.progress.samples):
            return self._skip(requested)
        if is_sweep_end is None:
            is_sweep_end = any(getattr(d, "end_of_sweep", False) for d in minibatch.values())
        step = self._step([as_variable(v) for v in requested])
        before, counters = self.training.value, [learner.counters for learner in self.learners]
        progress = self.progress
        number = progress.minibatches + 1
        exchange = self.distributed.begin(number, bool(is_sweep_end), progress.samples)
        conclusion_for = partial(self._conclusion_for, number, bool(is_sweep_end))
        run = self._run_with_python if self._runs_python else self._run
        _expected.before_step(self, minibatch)
        outcome = run(step, minibatch, number, exchange, conclusion_for)
        _expected.after_step(self, number, step, minibatch)
        after = self.training.value
        if after is before:  # no worker had data
            return self._skip(requested)
        for learner, counted in zip(self.learners, counters, strict=True):
            if outcome.learned:
                learner.report(counted)
        if synchronized := self.distributed.synchronized(exchange, self.progress.samples):
            for writer in self.writers:
                unwrap(writer).update_distributed_sync(synchronized, 0.0)
        if outcome.samples:
            self._report_step()
        values = {key: r.numpy() for key, r in zip(requested, outcome.outputs, strict=True)}
        return (after.trained, values) if requested else after.trained

    def _report_step(self) -> None:
        """Report the last minibatch to whatever sums up losses and metrics."""
        last = self._last_outcome()
        totals = last.samples, last.loss, 0.0 if last.metric is None else last.metric
        for writer in self.writers:
            unwrap(writer).update_training(*totals)
        self.distributed.add(*totals)

    def _skip(self, requested: Sequence[Any]) -> Any:
        """The result for a minibatch that is empty on all workers: the data have ended, and their models are merged."""
        self.distributed.merge()
        self.training.value = self.training.value._replace(previous=None)
        return (False, {}) if requested else False

    def _run(
        self, step: Step, minibatch: Mapping[Any, Any], number: int, exchange: Exchange | None,
        conclusion_for: ConclusionFor,
    ) -> Outcome:
        """Run a step; all workers take part where gradients are summed, also one without data."""
        try:
            if minibatch:
                return step.run(feeds(step, minibatch), number, exchange, conclusion_for)
            return step.exchange_and_update(exchange, conclusion_for=conclusion_for)
        except BaseException as error:
            self.distributed.abandon(error)
            raise

    def _run_with_python(
        self, step: Step, minibatch: Mapping[Any, Any], number: int, exchange: Exchange | None,
        conclusion_for: Callable[[Agreement], _StepConclusion],
    ) -> Outcome:
        """As `_run`, where learners take their step in Python code; if that does not end, all state is as before it."""
        conclusions: list[_StepConclusion] = []

        def wait(agreement: Agreement) -> Conclusion:
            conclusions.append(conclusion_for(agreement))
            return no_conclusion(agreement)

        with step.attempt(v for learner in self.learners for v in learner.extra_variables) as attempt:
            outcome = self._run(step, minibatch, number, exchange, wait)
            conclusion = conclusions[-1]
            for learner, samples in zip(self.learners, outcome.learned, strict=bool(outcome.learned)):
                if isinstance(learner, HostLearner) and samples:
                    learner.step_on_host(samples, conclusion.ends_sweep_since)
            conclude(lambda: conclusion(outcome, attempt.kept))
        return outcome

    def _conclusion_for(self, number: int, ends_sweep: bool, agreement: Agreement) -> _StepConclusion:
        """What counts the minibatch with this number. `ends_sweep`: whether it ends a sweep on this worker."""
        before = self.training.value._replace(progress=self.progress)
        samples, ends_sweep = self.distributed.agree(number, agreement, ends_sweep, before.progress.samples)
        blocks = self.distributed.conclusion(samples, before.progress.samples)
        return _StepConclusion(self, before, number, samples, ends_sweep, blocks)

    def _step(self, outputs: Sequence[Variable]) -> Step:
        """The step that also computes these outputs; another one after an attribute of the model was set."""
        key = tuple(outputs)
        step, structure = self._steps.get(key, (None, None))
        if step is None or step.plan.edits != edits():
            if self._model is not None:  # which may be another function than what the loss is computed from
                check_no_placeholders(self._model.placeholders)
            criteria = [self._loss, *([] if self.metric is None else [self.metric, *self.other_metrics])]
            plan = Plan([*criteria, *outputs])
            if step is None or (plan.key, plan.leaves, plan.arguments) != structure:
                step = Step(criteria, outputs, self.learners, self.memory, self.options, self.pending)
            step.plan.edits = plan.edits
            self._steps[key] = step, (plan.key, plan.leaves, plan.arguments)
        return step

    # ---- loss and metric of the last minibatch
    def _last_outcome(self) -> Outcome:
        previous = self.training.value.previous
        if previous is None:
            raise RuntimeError(
                "no loss to report: there was no preceding call to train_minibatch, or its minibatch was empty; call "
                "it with data first"
            )
        return previous

    @property
    def previous_minibatch_loss_average(self) -> float:
        """The loss of the last minibatch, averaged over its samples; waits for the step to finish."""
        last = self._last_outcome()
        return float(last.loss) / last.samples

    @property
    def previous_minibatch_evaluation_average(self) -> float:
        """The metric of the last minibatch, averaged over its samples; waits for the step to finish.

        Errors: ValueError if the trainer has no metric.
        """
        if self.metric is None:
            raise ValueError("there is no evaluation criterion: give the trainer (loss, metric)")
        last = self._last_outcome()
        return float(last.metric) / last.samples

    def previous_others(self) -> Sequence[SupportsFloat]:
        """The other metrics of the last minibatch, summed over its samples."""
        return self._last_outcome().others

    @property
    def previous_minibatch_sample_count(self) -> int:
        """The number of samples in the last minibatch; 0 if it was empty, or there was none."""
        previous = self.training.value.previous
        return 0 if previous is None else previous.samples

    @property
    def total_number_of_samples_seen(self) -> int:
        """The number of samples trained on so far."""
        return self.progress.samples

    def total_number_of_units_seen(self, unit: int = 1) -> int:
        """The number of samples, minibatches or sweeps trained on so far; `unit` is a ``DataUnit``.

        Errors: RuntimeError for another unit.
        """
        counts = self.progress.sweeps, self.progress.samples, self.progress.minibatches  # in the order of DataUnit
        if unit not in range(len(counts)):
            raise RuntimeError(f"total_number_of_units_seen: there is no unit of data {unit!r}; use train.DataUnit")
        return counts[unit]

    # ---- progress
    def begin_session(self, total_samples: int | None) -> None:
        """Announce to the progress writers how many samples there will be in total, if there is a limit."""
        for writer in self.writers:
            if isinstance(writer, ProgressWriter):  # others may have only the methods that CNTK calls
                unwrap(writer).begin_session(self.progress.samples, total_samples)

    def print_node_timing(self) -> None:
        """Print how long each operation took on average, forward and backward; see ``debugging.set_node_timing``."""
        print(timing_table([self.loss_function, *filter(None, [self.evaluation_function])]))

    def summarize_training_progress(self) -> None:
        """Make the progress writers report the training since their last summary.

        With block momentum all workers have to call it: it reports the averages over all their samples.
        """
        averages = self.distributed.averages()
        for writer in self.writers:
            if averages is not None and isinstance(writer, ProgressWriter):
                unwrap(writer).set_training_averages(*averages)
            unwrap(writer).write_training_summary()

    # ---- checkpoints
    def save_checkpoint(self, filename: FileName, external_state: Mapping[str, Any] = {}, *, wait: bool = True) -> None:
        """Write the model and, in a second file with the suffix '.ckp', all state needed to resume training.

        The files are replaced atomically, even if the process is killed meanwhile. `wait=False` returns as soon as the
        state is copied: the files are written in the background.

        Errors: TypeError for an external state that cannot be stored; OSError if the files cannot be written: with
                `wait=False`, from the next call that saves, restores or waits.
        """
        with self.turn:
            self._checkpoint_writer = self._checkpoint_writer or _checkpoint.CheckpointWriter()
        self._checkpoint_writer.write(self, os.fspath(filename), dict(external_state), wait)

    def wait_for_checkpoint(self) -> None:
        """Wait until the last checkpoint is written. Errors: OSError if writing it failed."""
        if self._checkpoint_writer is not None:
            self._checkpoint_writer.wait()

    def restore_from_checkpoint(self, filename: FileName) -> dict[str, Any]:
        """Resume from a checkpoint; returns the external state that was saved with it.

        Errors: FormatError for a damaged file, ValueError for one of another model or other learners; the trainer is
                then unchanged.
        """
        self.wait_for_checkpoint()
        with self.turn:
            return _checkpoint.restore(self, os.fspath(filename))


@dataclass(frozen=True)
class _StepConclusion:
    """What a step changes in the counts of a trainer, its learners and blocks; see `Conclusion`.

    `before`: the counts before it. `samples`, `ends_sweep`: of all workers. `blocks`: see `DistributedTraining`.
    """

    trainer: TrainerCore
    before: Training
    number: int
    samples: int
    ends_sweep: bool
    blocks: Callable[[Changes], Changes]

    @property
    def ends_sweep_since(self) -> bool:
        """Whether a sweep has ended since learners took their last step."""
        return self.before.ends_sweep or self.ends_sweep

    def __call__(self, outcome: Outcome, changes: Changes) -> Changes:
        """The changes of the step, with those of the counts; as they are if no worker had data."""
        if not self.samples:
            return changes
        trainer, progress = self.trainer, self.before.progress
        counted = [
            learner.counted(samples, self.ends_sweep_since, scalars)
            for learner, samples, scalars in zip(trainer.learners, outcome.learned, outcome.scalars, strict=False)
        ]
        trained = not counted or any(taken for _, taken in counted) or bool(trainer.distributed.blocks)
        if trained or trainer.distributed.counts_skipped:
            progress = Progress(
                progress.samples + self.samples, progress.minibatches + 1, progress.sweeps + self.ends_sweep
            )
        learned = counted[0][0].samples if counted else self.before.learned
        training = Training(progress, learned, not counted and self.ends_sweep_since, self._previous(outcome), trained)
        counters = {a.counters_cell: now for a, (now, _) in zip(trainer.learners, counted, strict=False)}
        changes = {**changes, trainer.training: training, **counters}
        return self.blocks(changes) if trained else changes

    def _previous(self, outcome: Outcome) -> Outcome | None:
        loss = _LazyLoss(outcome.loss, self.number, self.trainer.nan_minibatches)
        return replace(outcome, loss=loss) if outcome.samples else None


@public
@delegates_to(TrainerCore)
class Trainer(TrainerCore, Evaluator):
    """Trains a model by minibatches.

    `criterion`: the loss, or (loss, metric), or a function with these two outputs; the metric may be None.
    `parameter_learners`: one learner or several with disjoint parameters; parameters of none are not trained.
    `progress_writers`: one or several, which report losses and metrics.

    Beyond CNTK:

    `accumulate`: the number of minibatches after which learners take a step, on the sum of their gradients, as if they
    were one minibatch. Their counters do not change between steps.
    `precision`: 'bfloat16' or 'float16' for the type in which products with weights are computed. Parameters and all
    other computations stay in single precision. With float16 the loss is scaled so that small gradients are not lost,
    and a step whose gradients overflow is skipped.
    `rematerialize`: recompute most intermediate values in the backward pass instead of saving them, which takes more
    time and less memory.

    Units: losses and metrics are reported as averages over samples; `accumulate` is a number of minibatches.
    Errors: ValueError if there is no learner, or two cover the same parameter, or for unknown or conflicting options,
            or a loss that depends on no data.

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
        self,
        model: Function | Variable | None,
        criterion: Criterion,
        parameter_learners: Learner | Sequence[Learner],
        progress_writers: ProgressWriter | Sequence[ProgressWriter] | None = None,
        *,
        accumulate: int = 1,
        precision: str | None = None,
        rematerialize: bool = False,
    ) -> None:
        self.__wrapped__ = TrainerCore(
            model, criterion, parameter_learners, progress_writers, accumulate, precision, rematerialize
        )

    @staticmethod
    def _get_loss_metric(criterion: Criterion) -> tuple[Function, Function | None]:
        """Loss and metric of a criterion, which users' scripts call."""
        loss, metric = _criteria(criterion)
        return as_function(loss), None if metric is None else as_function(metric)


def _criteria(criterion: Criterion) -> tuple[Function | Variable, Function | Variable | None]:
    if isinstance(criterion, (tuple, list)):
        criteria = list(criterion)
    else:
        criteria = list(criterion.outputs) if isinstance(criterion, Function) else [criterion]
    if criteria[:1] == [None]:
        raise TypeError("criterion has to be a loss, or (loss, metric); there is no loss: give one")
    if not 1 <= len(criteria) <= 2:
        raise ValueError(f"criterion has to be a loss, or (loss, metric); got {len(criteria)} values: give at most two")
    loss, metric = itertools.islice(itertools.chain(criteria, [None]), 2)
    return loss, metric


def _options(accumulate: int, precision: str | None, rematerialize: bool, learners: Sequence[Learner]) -> StepOptions:
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ValueError(f"accumulate is a number of minibatches, at least 1, not {accumulate!r}")
    if precision not in (None, "bfloat16", "float16"):
        raise ValueError(f"precision is 'bfloat16', 'float16', or None for that of the model, not {precision!r}")
    if precision == "float16" and any(isinstance(learner, UserLearner) for learner in learners):
        raise ValueError("a UserLearner takes every step, also one that overflows in float16: use 'bfloat16'")
    return StepOptions(accumulate, precision, bool(rematerialize))


def _check_learners(learners: Sequence[Learner], parameters: Sequence[Leaf]) -> None:
    if not learners:
        raise ValueError("There must be at least one learner: give one, such as sgd(loss.parameters, lr)")
    learner_of: dict[Leaf, Learner] = {}
    for learner in learners:
        if not isinstance(learner, Learner):
            is_metric = isinstance(learner, (Edge, Node))
            raise TypeError(explain(
                f"a Trainer needs a learner or a list of learners, such as sgd(...), not {learner!r}",
                fix="give the loss and the metric as one argument: Trainer(model, (loss, metric), learners)"
                if is_metric else "",
            ))
        for p in unwrap(learner).parameters:
            if p in learner_of:
                raise ValueError(explain(
                    f"{p!r} is covered by 2 different learners", {"parameter": p}, "give each parameter to one learner"
                ))
            learner_of[p] = learner
    known = set(parameters)
    if unknown := [p for p in learner_of if p not in known]:
        verb = "is" if len(unknown) == 1 else "are"
        raise ValueError(explain(
            f"{len(unknown)} of the learners' parameters {verb} not part of the model: {_names(unknown)}",
            fix="make the learner with the parameters of the model or the loss, as in sgd(model.parameters, lr)",
        ))
    if (uncovered := [p for p in parameters if p not in learner_of]) and get_trace_level() != TraceLevel.Error:
        warning = f"no learner covers {len(uncovered)} of the model's parameters, which will not be learned"
        print(f"Trainer: {warning}: {_names(uncovered)}", file=sys.stderr)


def _names(parameters: Sequence[Leaf]) -> str:
    more = ", ..." if len(parameters) > 5 else ""
    return ", ".join(repr(p.name or p.uid) for p in parameters[:5]) + more


__all__ = ["MinibatchData", "Trainer", "use_default_device"]
