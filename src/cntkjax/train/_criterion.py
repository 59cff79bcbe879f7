"""`Function.train` and `Function.test`: training and testing with a function as the criterion."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..eval import Evaluator
from ..graph.arguments import checked
from ..graph.proxy import add_members, unwrap
from ..io import FULL_DATA_SWEEP, StreamInformation
from ..learners import Learner
from ..logging import ProgressWriter
from ..logging._progress_writer import Counts, Span
from ..ops._operand import as_list
from ..ops.functions import Function
from ..variables import Record
from ._sources import Data, Inputs, as_source, next_minibatch
from .callbacks import Callback as TrainingCallback
from .trainer import Trainer
from .training_session import (
    CheckpointConfig,
    CrossValidationConfig,
    DataUnit,
    Frequency,
    Sizes,
    TestConfig,
    as_frequency,
    as_sizes,
    training_session,
)

_CONFIGS: dict[type, str] = {
    CheckpointConfig: "checkpoint_config", CrossValidationConfig: "cv_config", TestConfig: "test_config",
}
Callback: TypeAlias = "ProgressWriter | CheckpointConfig | CrossValidationConfig | TestConfig | TrainingCallback"


class _Collector(ProgressWriter):
    """Collects the averages that other writers report."""

    def __init__(self, freq: int) -> None:
        super().__init__(trainingUpdateWriteFrequency=freq)
        self.updates: list[Record] = []
        self.epochs: list[Record] = []
        self.tests: list[Record] = []

    def on_write_training_update(
        self, samples: Counts, updates: Counts, aggregate_loss: Span, aggregate_metric: Span
    ) -> None:
        """Append the averages of some minibatches."""
        n, loss, metric = (span[1] - span[0] for span in (samples, aggregate_loss, aggregate_metric))
        self.updates.append(Record(loss=loss / max(n, 1), metric=metric / max(n, 1), samples=n))

    def on_write_training_summary(
        self, samples: int, updates: int, summaries: int, aggregate_loss: float, aggregate_metric: float,
        elapsed_milliseconds: int,
    ) -> None:
        """Append the averages of an epoch."""
        n = max(samples, 1)
        self.epochs.append(Record(loss=aggregate_loss / n, metric=aggregate_metric / n, samples=samples))

    def on_write_test_summary(
        self, samples: int, updates: int, summaries: int, aggregate_metric: float, elapsed_milliseconds: int
    ) -> None:
        """Append the average of a test."""
        self.tests.append(Record(metric=aggregate_metric / max(samples, 1), samples=samples))


def train(
    self: Function,
    minibatch_source: Data,
    minibatch_size: Sizes = 32,
    streams: Sequence[StreamInformation] | None = None,
    model_inputs_to_streams: Inputs | None = None,
    parameter_learners: Sequence[Learner] = [],
    callbacks: Sequence[Callback | None] = [],
    progress_frequency: Frequency = None,
    max_epochs: int | None = None,
    epoch_size: int | None = None,
    max_samples: int | None = None,
) -> Record:
    """Train with this function as the criterion: a loss, or a loss and a metric.

    `minibatch_source`: a source, or a tuple of arrays in the order of the arguments.
    `streams`: the streams of a source in this order; or `model_inputs_to_streams`, {argument: stream}.
    `callbacks`: progress writers, CheckpointConfig, CrossValidationConfig, TestConfig; also those of
    `cntkjax.train.callbacks`, an extension.
    `max_epochs`: by default one epoch, of `epoch_size` samples or, as in CNTK, as many as arrays or lists have
    rows or sequences; or give `max_samples` instead.

    Returns: a record of ``updates`` (at the frequency of the first progress writer) and ``epoch_summaries``, each with
             average loss, average metric and number of samples; ``test_summary`` after a test.
    Shapes: arrays are [samples, *shape of the argument].
    Units: `minibatch_size`, `epoch_size` and `max_samples` are in samples; averages are over samples.
    Errors: ValueError for conflicting or missing arguments.

    >>> import cntkjax as C, numpy as np
    >>> x, data = C.input_variable(1), np.ones((6, 1), np.float32)
    >>> loss = C.squared_error(C.times(x, C.parameter((1, 1))), 2 * x)
    >>> trained = loss.train((data,), 2, parameter_learners=[C.sgd(loss.parameters, 0.1)], max_epochs=2)
    >>> [epoch.samples for epoch in trained.epoch_summaries]
    [6, 6]
    """
    criterion = unwrap(self)
    if max_epochs is not None and max_samples is not None:
        raise ValueError("train: max_epochs and max_samples exclude each other; give one of them")
    configs, writers = _sorted_callbacks(callbacks)
    inputs = _inputs(criterion, streams, model_inputs_to_streams)
    source, inputs = as_source(minibatch_source, inputs, criterion)
    if max_samples is None:
        if epoch_size is None and isinstance(minibatch_source, (tuple, list)):
            epoch_size = source.num_sequences
        if epoch_size is None:
            raise ValueError("train: give epoch_size or max_samples, as only arrays have a known number of samples")
        max_samples = epoch_size * (1 if max_epochs is None else max_epochs)
    frequency = epoch_size if progress_frequency is None else progress_frequency
    frequencies = (writer.freq for writer in writers if hasattr(writer, "freq"))
    collector = _Collector(next(frequencies, _minibatches(frequency, minibatch_size)))
    trainer = Trainer(None, criterion, parameter_learners, [*writers, collector])
    training_session(trainer, source, minibatch_size, inputs, frequency, max_samples, **configs).train()
    # As in CNTK, a training that a checkpoint restores at its end has one epoch, of no samples.
    none = [Record(loss=0.0, metric=0.0, samples=0)]
    result = Record(updates=collector.updates if collector.epochs else none, epoch_summaries=collector.epochs or none)
    is_tested = "test_config" in configs and configs["test_config"].source is not None
    return result.updated_with(test_summary=collector.tests[-1]) if is_tested else result


def test(
    self: Function,
    minibatch_source: Data,
    minibatch_size: Sizes = 32,
    streams: Sequence[StreamInformation] | None = None,
    model_inputs_to_streams: Inputs | None = None,
    callbacks: Callback | Sequence[Callback | None] | None = None,
) -> Record:
    """The average of the last output over data; the arguments are those of `train`.

    Returns: a record of ``metric``, the average over samples, and ``samples``, their number.
    Errors: ValueError for missing streams, a source that never ends, or callbacks other than progress writers.
    """
    criterion = unwrap(self)
    configs, writers = _sorted_callbacks(callbacks)
    if configs:
        raise ValueError("test: callbacks have to be progress writers; leave out the others")
    inputs = _inputs(criterion, streams, model_inputs_to_streams)
    source, inputs = as_source(minibatch_source, inputs, criterion, FULL_DATA_SWEEP)
    if source.is_infinite():
        raise ValueError(
            "test: the minibatch_source must have a limited number of samples or sweeps: give max_sweeps=1 to it"
        )
    if not inputs:
        raise ValueError("test: give streams, or model_inputs_to_streams={argument: stream, ...}")
    collector, sizes, samples = _Collector(0), as_sizes(minibatch_size), 0
    evaluator = Evaluator(criterion.outputs[-1], [*writers, collector])
    while minibatch := next_minibatch(source, sizes[samples], inputs):
        samples += evaluator.test_sum(minibatch)[1]
    evaluator.summarize_test_progress()
    return collector.tests[-1]


def _minibatches(frequency: Frequency, minibatch_size: Sizes) -> int:
    """The number of full minibatches in a period; a very large one if the period is unknown in minibatches."""
    number, unit = as_frequency(frequency, "progress_frequency")
    if not number or unit is DataUnit.sweep:
        return sys.maxsize
    return number if unit is DataUnit.minibatch else max(number // as_sizes(minibatch_size)[0], 1)


def _sorted_callbacks(
    callbacks: Callback | Sequence[Callback | None] | None
) -> tuple[dict[str, Any], list[ProgressWriter]]:
    """{argument of a training session: its configuration}, and the progress writers; None is no callback."""
    configs: dict[str, Any] = {}
    writers = []
    for callback in as_list(callbacks or []):
        if callback is None:
            continue
        name = next((name for kind, name in _CONFIGS.items() if isinstance(callback, kind)), None)
        if name in configs:
            raise ValueError(f"callbacks have two of type {type(callback).__name__}; give only one")
        if name is not None:
            configs[name] = callback
        elif isinstance(callback, ProgressWriter):
            writers.append(callback)
        elif isinstance(callback, TrainingCallback):
            configs.setdefault("callbacks", []).append(callback)
        else:
            kinds = ", ".join(kind.__name__ for kind in _CONFIGS)
            is_class = isinstance(callback, type) and issubclass(callback, TrainingCallback)
            hint = f": call it, {callback.__name__}(...)" if is_class else ""
            raise TypeError(
                f"a callback has to be a progress writer, a Callback or one of {kinds}, not {callback!r}{hint}"
            )
    return configs, writers


def _inputs(criterion: Function, streams: Sequence[StreamInformation] | None, inputs: Inputs | None) -> Inputs | None:
    if streams is None:
        return inputs
    if inputs:
        raise ValueError("streams and model_inputs_to_streams exclude each other; give one of them")
    return criterion.argument_map(*streams)


add_members(Function, {f.__name__: checked(f, f"Function.{f.__name__}", first=True) for f in (train, test)})
