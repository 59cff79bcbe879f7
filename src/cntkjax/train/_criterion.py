"""`Function.train` and `Function.test`: a criterion trains its model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..eval import Evaluator
from ..graph.proxy import add_members, unwrap
from ..io import FULL_DATA_SWEEP
from ..logging import ProgressWriter
from ..ops._operand import as_list
from ..ops.functions import Function
from ..variables import Record
from ._sources import Inputs, as_source, next_minibatch
from .trainer import Trainer
from .training_session import (
    CheckpointConfig,
    CrossValidationConfig,
    DataUnit,
    Frequency,
    TestConfig,
    as_frequency,
    as_sizes,
    training_session,
)

_CONFIGS = {
    CheckpointConfig: "checkpoint_config", CrossValidationConfig: "cv_config", TestConfig: "test_config",
}


class _Collector(ProgressWriter):
    """Keeps the averages that other writers show."""

    def __init__(self, freq: int) -> None:
        super().__init__(training_update_freq=freq)
        self.updates: list[Record] = []
        self.epochs: list[Record] = []
        self.tests: list[Record] = []

    def on_write_training_update(self, samples: Any, updates: Any, aggregate_loss: Any, aggregate_metric: Any) -> None:
        n, loss, metric = (span[1] - span[0] for span in (samples, aggregate_loss, aggregate_metric))
        self.updates.append(Record(loss=loss / max(n, 1), metric=metric / max(n, 1), samples=n))

    def on_write_training_summary(
        self, samples: int, updates: int, summaries: int, aggregate_loss: float, aggregate_metric: float,
        elapsed_milliseconds: int,
    ) -> None:
        n = max(samples, 1)
        self.epochs.append(Record(loss=aggregate_loss / n, metric=aggregate_metric / n, samples=samples))

    def on_write_test_summary(
        self, samples: int, updates: int, summaries: int, aggregate_metric: float, elapsed_milliseconds: int
    ) -> None:
        self.tests.append(Record(metric=aggregate_metric / max(samples, 1), samples=samples))


def train(
    self: Function, minibatch_source: Any, minibatch_size: Any = 32, streams: Any = None,
    model_inputs_to_streams: Any = None, parameter_learners: Sequence[Any] = [], callbacks: Sequence[Any] = [],
    progress_frequency: Any = None, max_epochs: int | None = None, epoch_size: int | None = None,
    max_samples: int | None = None,
) -> Record:
    """Train with this function as the criterion: a loss, or a loss and a metric.

    `minibatch_source`: a source, or a tuple of arrays in the order of the arguments.
    `streams`: of a source, in that order; or `model_inputs_to_streams`, {argument: stream}.
    `callbacks`: progress writers, CheckpointConfig, CrossValidationConfig, TestConfig.
    `max_epochs`: of `epoch_size` samples, by default one epoch of all data; or `max_samples` instead.

    Returns: a record of ``updates`` (every so many minibatches, as the first progress writer has it) and
             ``epoch_summaries``, each with average loss, average metric and samples; ``test_summary`` after a test.
    Errors: ValueError for what does not fit together.

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
            epoch_size = source.num_samples
        if epoch_size is None:
            raise ValueError("train: give epoch_size or max_samples; only arrays know how many samples they have")
        max_samples = epoch_size * (1 if max_epochs is None else max_epochs)
    frequency = progress_frequency or epoch_size
    shown = (writer.freq for writer in writers if hasattr(writer, "freq"))
    collector = _Collector(next(shown, _minibatches(frequency, minibatch_size)))
    trainer = Trainer(None, criterion, parameter_learners, [*writers, collector])
    training_session(trainer, source, minibatch_size, inputs, frequency, max_samples, **configs).train()
    result = Record(updates=collector.updates, epoch_summaries=collector.epochs)
    return result.updated_with(test_summary=collector.tests[-1]) if "test_config" in configs else result


def test(
    self: Function, minibatch_source: Any, minibatch_size: Any = 32, streams: Any = None,
    model_inputs_to_streams: Any = None, callbacks: Sequence[Any] | None = None,
) -> Record:
    """Average of the last output over data, given as for `train`; a record of ``metric`` and ``samples``."""
    criterion = unwrap(self)
    configs, writers = _sorted_callbacks(callbacks)
    if configs:
        raise ValueError("test: of callbacks it takes progress writers only")
    inputs = _inputs(criterion, streams, model_inputs_to_streams)
    source, inputs = as_source(minibatch_source, inputs, criterion, FULL_DATA_SWEEP)
    if source.is_infinite():
        raise ValueError("test: the minibatch_source must have a limited number of samples or sweeps")
    if not inputs:
        raise ValueError("test: give streams, or model_inputs_to_streams={argument: stream, ...}")
    collector, sizes, samples = _Collector(0), as_sizes(minibatch_size), 0
    evaluator = Evaluator(criterion.outputs[-1], [*writers, collector])
    while minibatch := next_minibatch(source, sizes[samples], inputs):
        samples += evaluator.test_sum(minibatch)[1]
    evaluator.summarize_test_progress()
    return collector.tests[-1]


def _minibatches(frequency: Frequency, minibatch_size: Any) -> int:
    """How many whole minibatches there are in a frequency; more than ever come for one that does not say."""
    number, unit = as_frequency(frequency, "progress_frequency")
    if not number or unit is DataUnit.sweep:
        return sys.maxsize
    return number if unit is DataUnit.minibatch else max(number // as_sizes(minibatch_size)[0], 1)


def _sorted_callbacks(callbacks: Any) -> tuple[dict[str, Any], list[Any]]:
    """{argument of a training session: its configuration}, and the progress writers."""
    configs: dict[str, Any] = {}
    writers = []
    for callback in as_list(callbacks or []):
        name = next((name for kind, name in _CONFIGS.items() if isinstance(callback, kind)), None)
        if name in configs:
            raise ValueError(f"callbacks have two of type {type(callback).__name__}; there can be one")
        if name is not None:
            configs[name] = callback
        elif isinstance(callback, ProgressWriter):
            writers.append(callback)
        else:
            kinds = ", ".join(kind.__name__ for kind in _CONFIGS)
            raise TypeError(f"a callback has to be a progress writer or one of {kinds}, not {callback!r}")
    return configs, writers


def _inputs(criterion: Any, streams: Sequence[Any] | None, inputs: Inputs | None) -> Inputs | None:
    if streams is None:
        return inputs
    if inputs:
        raise ValueError("streams and model_inputs_to_streams exclude each other; give one of them")
    return criterion.argument_map(*streams)


add_members(Function, {"train": train, "test": test})
