"""The trainer: takes steps, keeps count, reports progress, saves and restores."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine.feeds import to_ragged
from ..engine.training import Outcome, Step
from ..graph.errors import explain
from ..ops import combine
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function
from ..variables import Variable


class Trainer:
    """Trains a model by minibatches.

    `criterion`: the loss, or (loss, metric), or a function with these two outputs; the metric may be None.
    `parameter_learners`: one learner or several with disjoint parameters; what none covers stays as it is.

    Units: losses and metrics are reported as averages over samples.
    Errors: ValueError if there is no learner, or two cover the same parameter.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(1)
    >>> z = C.times(x, C.parameter((2, 1)))
    >>> trainer = Trainer(z, C.squared_error(z, y), C.sgd(z.parameters, lr=0.1))
    >>> trainer.train_minibatch({x: [[1, 2]], y: [[3]]})
    True
    >>> round(trainer.previous_minibatch_loss_average, 6), trainer.total_number_of_samples_seen
    (9.0, 1)
    """

    def __init__(self, model: Any, criterion: Any, parameter_learners: Any, progress_writers: Any = None) -> None:
        self._loss, self._metric = _criteria(criterion)
        self._model = None if model is None else _as_function(model)
        self._learners = tuple(as_list(parameter_learners))
        self._writers = [] if progress_writers is None else as_list(progress_writers)
        _check_learners(self._learners)
        for learner in self._learners:
            learner.add_progress_writers(self._writers)
        self._criteria = [v for v in (self._loss, self._metric) if v is not None]
        self._steps: dict[tuple[str, tuple[Variable, ...]], Step] = {}
        self._previous: Outcome | None = None
        self._samples_seen = 0

    # ---- what it trains
    @property
    def model(self) -> Function | None:
        """The model."""
        return self._model

    @property
    def loss_function(self) -> Function:
        """The loss."""
        return _as_function(self._loss)

    @property
    def evaluation_function(self) -> Function | None:
        """The metric, or None."""
        return None if self._metric is None else _as_function(self._metric)

    @property
    def parameter_learners(self) -> tuple[Any, ...]:
        """The learners."""
        return self._learners

    # ---- steps
    def train_minibatch(self, arguments: Any, outputs: Any = None, device: Any = None, is_sweep_end: bool | None = None) -> Any:
        """Take one step; True if anything was trained (False for an empty minibatch, or if all learning rates are 0).

        `arguments`: {variable: array, list of sequences, sparse matrix, or minibatch of a reader}.
        `outputs`: variables whose values are wanted: then the result is a pair (trained, {output: value}).
        `is_sweep_end`: overrides what a reader's minibatch says.

        The step is not waited for: losses are fetched when they are read.
        """
        fed = self._fed(arguments)
        wanted = [] if outputs is None else [as_variable(v) for v in as_list(outputs)]
        if not fed:
            return False if outputs is None else (False, {})
        if is_sweep_end is None:
            is_sweep_end = any(getattr(d, "end_of_sweep", False) for d in fed.values())
        step = self._step("train", wanted, self._learners)
        outcome = step.run(_feeds(step, fed))
        taken = [learner.advance(outcome.samples, bool(is_sweep_end)) for learner in self._learners]
        self._previous = outcome
        self._samples_seen += outcome.samples
        for writer in self._writers:
            writer.update_training(outcome.samples, outcome.loss, outcome.metric if outcome.metric is not None else 0.0)
        trained = any(taken)
        return trained if outputs is None else (trained, {r.variable: r.numpy() for r in outcome.outputs})

    def test_minibatch(self, arguments: Any, device: Any = None) -> float:
        """The metric's average over a minibatch; nothing is trained. ValueError if there is no metric."""
        if self._metric is None:
            raise ValueError("Cannot test when no evaluation function was specified during construction: give (loss, metric)")
        step = self._step("test", [], (), [self._metric])
        outcome = step.run(_feeds(step, self._fed(arguments)))
        for writer in self._writers:
            writer.update_test(outcome.samples, outcome.loss)
        return float(outcome.loss) / outcome.samples

    def _fed(self, arguments: Any) -> dict[Any, Any]:
        if isinstance(arguments, Mapping):
            return dict(arguments)
        return dict(zip(_as_function(self._loss).arguments, as_list(arguments), strict=True))

    def _step(self, kind: str, outputs: Sequence[Variable], learners: Sequence[Any], criteria: Any = None) -> Step:
        key = kind, tuple(outputs)
        if key not in self._steps:
            self._steps[key] = Step(self._criteria if criteria is None else criteria, outputs, learners)
        return self._steps[key]

    # ---- figures
    def _last(self) -> Outcome:
        if self._previous is None:
            raise RuntimeError("There was no preceding call to train_minibatch, or the minibatch was empty.")
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
        """Samples in the last minibatch."""
        return self._last().samples

    @property
    def total_number_of_samples_seen(self) -> int:
        """Samples trained on so far."""
        return self._samples_seen

    # ---- progress
    def summarize_training_progress(self) -> None:
        """Let the progress writers report what was trained since the last summary."""
        for writer in self._writers:
            writer.write_training_summary()

    def summarize_test_progress(self) -> None:
        """Let the progress writers report what was tested since the last summary."""
        for writer in self._writers:
            writer.write_test_summary()

    def print_node_timing(self) -> None:
        """CNTK times nodes; here XLA fuses them. Use jax.profiler for the time inside a step."""
        print("cntkjax: nodes are compiled together and have no times of their own; see jax.profiler.trace")

    # ---- checkpoints
    def save_checkpoint(self, filename: str, external_state: Mapping[str, Any] = {}) -> None:  # noqa: B006
        """Write the model and, beside it with the suffix '.ckp', all that is needed to go on."""
        from ._checkpoint import save

        save(self, filename, dict(external_state))

    def restore_from_checkpoint(self, filename: str) -> dict[str, Any]:
        """Go on from a checkpoint; returns the external state that was saved with it.

        Errors: what reading a damaged file or one of another model raises; the trainer is then as it was.
        """
        from ._checkpoint import restore

        return restore(self, filename)


def _criteria(criterion: Any) -> tuple[Variable, Variable | None]:
    if isinstance(criterion, (tuple, list)):
        found = list(criterion)
    else:
        found = list(criterion.outputs) if isinstance(criterion, Function) else [criterion]
    if not 1 <= len(found) <= 2 or found[0] is None:
        raise ValueError(f"criterion has to be a loss, or (loss, metric); got {len(found)} values")
    loss, metric = itertools.islice(itertools.chain(found, [None]), 2)
    return as_variable(loss), None if metric is None else as_variable(metric)


def _as_function(of: Any) -> Function:
    if isinstance(of, Function):
        return of
    if isinstance(of, (tuple, list)):
        return combine(*of)
    return combine(of)


def _check_learners(learners: Sequence[Any]) -> None:
    if not learners:
        raise ValueError("There must be at least one learner.")
    seen: dict[Any, Any] = {}
    for learner in learners:
        for p in learner.parameters:
            if p in seen:
                raise ValueError(explain(f"Parameter {p!r} is covered by 2 different learners", {"parameter": p}))
            seen[p] = learner


def _feeds(step: Step, fed: Mapping[Any, Any]) -> dict[Variable, Any]:
    """What the step needs of what was fed, checked."""
    needed = step.plan.arguments
    if not all(v in fed for v in needed):
        by_name = {v.name: v for v in needed if v.name}
        fed = {by_name.get(k, k) if isinstance(k, str) else as_variable(k): d for k, d in fed.items()}
        missing = [v for v in needed if v not in fed]
        if missing:
            raise ValueError(explain(
                "values for " + ", ".join(f"argument {v.name or v.uid!r}" for v in missing) + " have not been provided",
                {"missing": missing[0]}, "give an array for each argument: {argument: array, ...}",
            ))
    return {v: to_ragged(v, fed[v]) for v in needed}
