"""A training as a block describes it: epoch by epoch, each a training session."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ..configuration import ConfigError
from ..eval import Evaluator
from ..graph.proxy import unwrap
from ..logging import ProgressWriter
from ..ops import combine
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function
from ..parallel import workers
from ..train._sources import Criterion, Data, Inputs, as_source
from ..train.trainer import Trainer
from ..train.training_session import CrossValidationConfig, DataUnit, minibatch_size_schedule
from . import auto_minibatch, auto_rate, recorded_search
from ._checkpoints import Checkpoints
from ._criteria import inputs_by_name, named_criteria
from ._gradient_check import check_gradients
from ._learners import Factors, learners_of, momentum_per_sample, set_dropout_rate, set_momentum, set_rate
from ._meter import EpochPrinter, Meter
from ._monitor import Monitor
from ._observer import Observer
from ._one_bit import OneBit
from ._reader import StepCounter, begins_anew, counts_labels, epoch_of, shared
from ._session import Session
from ._trials import Trials
from ._workers import MERGING, summed
from .history import Epoch, History
from .settings import BlockSettings


class BlockRun:
    """One training. For the arguments see `SGD.train`. What can be checked before it runs is checked here.

    `validate`: returns loss and metrics on validation data, in minibatches of a size; otherwise `cv_source` has them.
    `factors`: of the learning rate, by parameters. `trained`: epochs that the model was trained in already, if there
    is no checkpoint of them: then the run goes on after them, without their momentum.
    `observer`: gets what happens; then the last epoch's checkpoint is modelPath itself, and trials before epochs are
    those of recorded_search.py, as on CNTK's command line.
    Errors: as of `SGD.train`.
    """

    def __init__(
        self, settings: BlockSettings, criterion: Criterion, source: Data, inputs: Inputs | None,
        cv_source: Data | None, writers: ProgressWriter | Sequence[ProgressWriter] | None, model: Function | None,
        observer: Observer | None = None, validate: Callable[[int], Sequence[float]] | None = None,
        factors: Factors = MappingProxyType({}), trained: int = 0,
    ) -> None:
        self._observer, self._as_recorded = observer or Observer(), observer is not None
        self._settings, self._epochs, self._trained = settings, settings.required("maxEpochs"), trained
        if settings["autoAdjustLR"] != "searchBeforeEpoch" and settings.rates is None:
            raise ConfigError("the SGD block has no learning rate: give learningRatesPerSample or learningRatesPerMB, "
                              "or autoAdjustLR = searchBeforeEpoch")
        loss, metrics = named_criteria(criterion, settings)
        criteria = [as_variable(each) for each in (loss, *metrics)]
        loss, metrics = criteria[0], criteria[1:]
        self._names = [v.name or v.uid for v in criteria]
        self._loss = combine([loss])
        self._source: Any
        self._source, from_arrays = as_source(source, inputs, criterion)
        self._inputs = from_arrays or inputs_by_name(criteria, self._source)
        _check_truncation(settings, self._source)
        self._model = model or combine(criteria)
        self._checkpoints = Checkpoints(
            settings["modelPath"], settings["keepCheckPointFiles"], None if observer is None else self._epochs
        )
        self._meter = Meter(as_list(self._printers() if writers is None else writers), self._observer)
        metric = metrics[0] if metrics else None
        learners = learners_of(settings, self._loss, self._epoch_size, factors)
        is_alone = settings["parallelizationMethod"] == "dataParallelSGD" and workers.size() == 1
        quantizes = is_alone and any(bits == 1 for _, bits in settings["gradientBits"].entries)
        self._one_bit = OneBit(learners) if quantizes else None
        self._trainer = Trainer(model, (loss, metric), learners, [self._meter])  # type: ignore[list-item]
        self._set_rate = partial(set_rate, self._trainer, factors)
        if metrics[1:]:
            core = unwrap(self._trainer)
            core.other_metrics, self._meter.others_of = metrics[1:], core.previous_others
        reported = 1 if metrics else 0  # the test that is reported is that of the first metric
        self._tests = [
            Evaluator(c, [self._meter] if i == reported else None) for i, c in enumerate(criteria)  # type: ignore[list-item]
        ]
        self._cv = _validation(cv_source, criterion)
        self._validate = validate or (None if self._cv is None else self._tested)
        self._history = History()
        self._reader = shared(self._source)
        # momentum counts time steps, but that of fsAdaGrad samples of the loss: CNTK's log of G2P
        counts_steps = settings["gradUpdateType"] != "fsAdaGrad"
        if counts_steps and (counts_labels(loss, self._inputs) or begins_anew(self._source)):
            sums = settings["parallelizationMethod"] == "dataParallelSGD"
            self._reader = StepCounter(self._reader, self._inputs, self._count_steps, sums)

    def _epoch_size(self) -> int:
        """The number of samples in an epoch."""
        return self._settings["epochSize"] or _samples_in_sweep(self._source)

    def _count_steps(self, steps: int) -> None:
        """Momentum counts the time steps of a minibatch."""
        set_momentum(self._trainer, self._settings.momentum.at(len(self._history)), steps)

    def _printers(self) -> list[ProgressWriter]:
        last = self._checkpoints.last_epoch()  # which all workers have to ask for
        if workers.rank():
            return []
        frequency, first = self._settings["numMBsToShowResult"], self._settings["firstMBsToShowResult"]
        printer = EpochPrinter(
            lambda: len(self._history) + 1, freq=frequency or None, first=first, tag="Training", num_epochs=self._epochs
        )
        if last:
            share = f"{last} of {self._epochs} epochs" if last < self._epochs else (
                f"{last} epochs: maxEpochs = {self._epochs} asks for no more"
            )
            printer.log(f"Restored from {self._checkpoints.file(last)}, which has {share}")
        return [printer]

    def train(self) -> History:
        """Train to the last epoch, or until the rate is too small; returns the history."""
        if self._settings["traceLevel"] and workers.rank() == 0:
            print(self._settings.describe())
        with self._checkpoints:
            if self._trained:
                self._history = self._after(self._trained)
            else:
                self._history = self._checkpoints.resume(self._trainer, self._source)
            self._observer.resumes(sum(epoch.samples for epoch in self._history))
            size = self._settings["epochSize"]
            self._meter.begin_session(len(self._history) * size, self._epochs * size or None)
            while len(self._history) < self._epochs and not self._history.ended_early:
                self._train_epoch(len(self._history))
            self._checkpoints.save_model(self._model)
            for name, best in self._best().items():
                copy = self._checkpoints.copy(best.number, name)
                self._observer.copies(name, best.number, self._checkpoints.file(best.number), copy)
        return self._history

    def _after(self, epochs: int) -> History:
        """A history of epochs of which nothing is known; the data go on after them."""
        if not begins_anew(self._source):
            position = epochs * self._epoch_size()
            self._source.restore_from_checkpoint(dict.fromkeys(self._source.get_checkpoint_state(), position))
        size = self._settings["minibatchSize"]
        return History([Epoch(i + 1, 0, 0, math.inf, None, 0.0, 1.0, size.at(i)) for i in range(epochs)])

    def _best(self) -> dict[str, Epoch]:
        """The best epoch by each criterion, if their models are to be kept."""
        return self._history.best() if self._settings["saveBestModelPerCriterion"] else {}

    def _return(self, repeated: Sequence[Epoch]) -> None:
        """Go back to before the last epochs, which are repeated with a smaller rate."""
        epoch = len(self._history) - len(repeated)
        self._history = self._checkpoints.restore(epoch, self._trainer, self._source)
        last = self._history.epochs[-1]
        self._history.epochs[-1] = replace(last, repeats=last.repeats + 1)
        factor = auto_rate.factor_after(self._settings, self._history.epochs)
        self._observer.returns(
            self._checkpoints.file(epoch), epoch, repeated[0].rate * factor / repeated[0].rate_factor,
            sum(each.samples for each in repeated),
        )
        self._save()

    def _save(self) -> None:
        needed = self._settings["learnRateAdjustInterval"]
        self._checkpoints.save(self._trainer, self._source, self._history, needed)

    # ---- an epoch, by its number from 0
    def _train_epoch(self, epoch: int) -> None:
        settings = self._settings
        if settings["dropoutRate"] is not None:
            set_dropout_rate(self._loss, settings["dropoutRate"].at(epoch))
        set_momentum(self._trainer, settings.momentum.at(epoch))
        if self._one_bit is not None:
            begun = epoch + 1 >= settings["parallelizationStartEpoch"]
            self._one_bit.begin_epoch(begun and settings["gradientBits"].at(epoch) == 1)
        record = self._planned(epoch)
        if record.rate < settings["minLearningRatePerSample"]:
            self._history.ended_early = f"epoch {epoch + 1} would have a learning rate per sample of {record.rate:g}"
            self._observer.stops(epoch + 1, record.rate, settings["minLearningRatePerSample"])
            return
        if settings["gradientCheck"]:
            check_gradients(self._loss, self._source, self._inputs, record.minibatch_size, settings["sigFigs"])
        self._observer.begins(record, momentum_per_sample(settings.momentum.at(epoch)))
        self._set_rate(record.rate)
        self._meter.show("Learning rate per sample", record.rate)
        self._meter.show("Minibatch size", record.minibatch_size)
        tally = self._meter.begin_epoch()
        monitor = Monitor(settings, self._meter, is_first=epoch == 0)
        with monitor, epoch_of(self._source, epoch, settings["epochSize"]) as limits:
            Session(
                self._trainer, self._reader, record.minibatch_size, self._inputs,
                on_start=partial(self._on_start, monitor, record.rate), on_end=monitor.on_end, **limits,
            ).train()
        if not tally.samples and not self._reader.is_infinite():  # a sequence may be longer than several epochs
            raise RuntimeError(f"the data ended before epoch {epoch + 1}: give a source that repeats them, without "
                               "max_sweeps or max_samples, or a smaller maxEpochs")
        sums = [tally.samples, *map(float, (tally.loss, tally.metric, *tally.others))]
        sums = self._of_all_workers(epoch, f"the end of epoch {epoch + 1}", sums)
        loss, metric, *others = (total / max(sums[0], 1) for total in sums[1:])
        metrics = self._several([metric, *others])
        record = replace(
            record, samples=int(sums[0]), minibatches=tally.minibatches, loss=loss, metrics=metrics,
            metric=metric if len(self._tests) > 1 else None,
        )
        self._observer.ended(record)
        self._history.epochs.append(self._validated(record))
        if best := self._best():
            self._observer.chooses(best)
        if count := auto_rate.epochs_to_repeat(settings, self._history.epochs):
            self._return(self._history.epochs[-count:])
            return
        self._observer.saves(self._checkpoints.file(record.number))
        self._save()

    def _on_start(self, monitor: Monitor, rate: float) -> None:
        """Called before each minibatch of an epoch with a rate, which asynchronous training reaches in steps."""
        monitor.on_start()
        if self._settings["parallelizationMethod"] == "dataParallelASGD" and self._settings["adjustCoefficient"] < 1:
            steps = self._trainer.total_number_of_units_seen(DataUnit.minibatch) // self._settings["adjustNBMiniBatch"]
            self._set_rate(rate * min(self._settings["adjustCoefficient"] * (steps + 1), 1.0))

    def _of_all_workers(self, epoch: int, operation: str, sums: Sequence[float]) -> list[float]:
        """Sums of samples, loss and metrics over workers that train on their own."""
        padded = [*sums, *[0.0] * (len(self._names) + 1 - len(sums))]  # where a worker had no samples
        has_begun = epoch + 1 >= self._settings["parallelizationStartEpoch"]
        merges = has_begun and self._settings["parallelizationMethod"] in MERGING
        return summed(operation, padded) if merges else padded

    def _validated(self, record: Epoch) -> Epoch:
        """The record of an epoch with loss and metrics of the validation data."""
        if self._validate is None:
            return record
        loss, *metrics = self._validate(record.minibatch_size)
        if metrics:
            self._meter.show("Validation loss", loss)
        self._several(metrics, "Validation ")
        return replace(
            record, cv_loss=loss, cv_metric=metrics[0] if metrics else None,
            cv_criteria=dict(zip(self._names, [loss, *metrics], strict=True)),
        )

    def _tested(self, size: int) -> list[float]:
        """Loss and metrics of the data in cv_source."""
        assert self._cv is not None
        self._cv.minibatch_size = minibatch_size_schedule(size)
        return [self._cv.run(unwrap(test), self._inputs, math.inf, None)[0] for test in self._tests]

    def _several(self, averages: Sequence[float], title: str = "") -> dict[str, float]:
        """Report the metrics of an epoch by their names, if there are several: progress lines have the first only."""
        if len(self._names) < 3:
            return {}
        metrics = dict(zip(self._names[1:], averages, strict=True))
        for name, average in metrics.items():
            self._meter.show(f"{title}{name}", average)
        return metrics

    def _planned(self, epoch: int) -> Epoch:
        """The record of an epoch to come: its rate and size, found by trials if the block says so."""
        settings, epochs = self._settings, self._history.epochs
        size = auto_minibatch.size_before(settings, epochs, epoch)
        factor = auto_rate.factor_after(settings, epochs)
        rate = auto_rate.first_rate(settings, epoch, size)
        if self._as_recorded:  # in CNTK's logs rates of blocks have single precision, and found ones do not
            rate = float(np.float32(rate))
        rate *= factor
        searches_rate = auto_rate.is_due(settings, epoch)
        searches_size = auto_minibatch.is_due(settings, epoch)
        trials: Sequence[tuple[float, float]] = ()
        spent = 0
        if searches_rate or searches_size:
            data = partial(epoch_of, self._source, epoch, settings["epochSize"])
            with Trials(
                self._trainer, self._tests[0], self._reader, self._inputs, self._meter, self._set_rate, self._observer,
                epoch + 1, data, partial(self._of_all_workers, epoch),
            ) as scope:
                samples, report = self._epoch_size(), self._observer.searches
                if searches_rate and self._as_recorded and epoch >= settings["numBestSearchEpoch"]:
                    rate, trials = recorded_search.find_rate(scope, settings, epochs, size, samples, report)
                elif searches_rate:
                    minibatches = math.ceil(samples / size)
                    rate, trials = auto_rate.search(scope, settings, epochs, rate, size, minibatches, report)
                if searches_size and self._as_recorded:
                    size = recorded_search.find_size(scope, settings, epochs, rate, size, report)
                elif searches_size:
                    size = auto_minibatch.search(scope, settings, rate, size, samples)
            spent = math.ceil(scope.spent)
        if settings["traceLevel"] and workers.rank() == 0:
            print("".join(f"Epoch {epoch + 1}: trial of rate {r:g}: loss {loss:g}\n" for r, loss in trials), end="")
        return Epoch(epoch + 1, 0, 0, 0.0, None, rate, factor, size, search_minibatches=spent, trials=tuple(trials))


def _validation(cv_source: Data | None, criterion: Criterion) -> CrossValidationConfig | None:
    """The data for tests. Errors: ConfigError for a source that never ends."""
    if cv_source is None:
        return None
    is_data = isinstance(cv_source, (tuple, list))
    validation = CrossValidationConfig(cv_source, criterion=criterion if is_data else None)
    if validation.source.is_infinite():
        raise ConfigError("the source of validation data never ends: give it max_sweeps=1")
    return validation


def _samples_in_sweep(source: Any) -> int:
    """The number of samples in a sweep over the data. Errors: ConfigError for sources that do not know it."""
    samples = getattr(source, "num_samples", None)
    if not isinstance(samples, int):
        raise ConfigError(f"{type(source).__name__} does not say how many samples a sweep has, on which this run "
                          "depends: give epochSize")
    return samples


def _check_truncation(settings: BlockSettings, source: Any) -> None:
    length = getattr(source, "truncation_length", 0)
    if settings["truncated"] and not length:
        raise ConfigError("truncated = true needs a source that cuts sequences: give MinibatchSource(..., "
                          "truncation_length=n)")
    if length and not settings["truncated"]:
        raise ConfigError("the source cuts sequences, but truncated = false: set truncated = true, or give a source "
                          "without truncation_length")
