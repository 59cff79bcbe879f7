"""Training sessions: the whole training loop, with progress, checkpoints, cross validation and a final test."""

from __future__ import annotations

import math
import operator
import os
import re
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

from ..device import DeviceDescriptor, use_default_device
from ..formats.checkpoint import SUFFIX, exists
from ..graph.arguments import public
from ..graph.proxy import delegates_to, unwrap
from ..io import FULL_DATA_SWEEP, INFINITELY_REPEAT, MinibatchData
from ..learners import TrainingParameterSchedule
from ..learners._schedules import Entries
from ..parallel import workers
from ..variables import Variable
from ._progress import Progress
from ._sources import Criterion, Data, Inputs, SessionSource, as_source, next_minibatch, unmoved
from .callbacks import Callback, CallbackList, EpochAverages
from .trainer import Trainer, TrainerCore

_SOURCE = "TrainingMinibatchSource"  # the key of the source's state in a checkpoint, as CNTK has it
_CALLBACKS = "Callbacks"  # the key of their states


@public
class DataUnit(IntEnum):
    """The unit of a frequency.

    >>> [unit.name for unit in DataUnit]
    ['sample', 'minibatch', 'sweep']
    """

    sample = 1
    minibatch = 2
    sweep = 0

    def __str__(self) -> str:
        return f"DataUnit.{self.name}"


Frequency = int | tuple[int, DataUnit] | None
Sizes: TypeAlias = "int | MinibatchSizeSchedule"


class MinibatchSizeSchedule(TrainingParameterSchedule):
    """Minibatch sizes by the number of samples seen: ``schedule[samples]``."""

    def __getitem__(self, count: int) -> int:
        return int(super().__getitem__(count))


@public
def minibatch_size_schedule(schedule: Entries, epoch_size: int = 1) -> MinibatchSizeSchedule:
    """Minibatch sizes that change during training: a number, or a list of sizes or (epochs, size) pairs.

    Units: sizes and ``epoch_size`` are in samples; an entry without a number of epochs holds for one, the last entry
           for all later ones.
    Errors: ValueError for sizes that are not whole and positive; RuntimeError for an empty list.

    >>> sizes = minibatch_size_schedule([32, (2, 64), 128], epoch_size=1000)
    >>> sizes[999], sizes[1000], sizes[3000]
    (32, 64, 128)
    """
    if isinstance(schedule, (int, float)):
        sizes = MinibatchSizeSchedule(schedule)
    else:
        sizes = MinibatchSizeSchedule(schedule, epoch_size, what="minibatch_size_schedule")
    for _, size in sizes.entries:
        if size < 1 or not size.is_integer():
            raise ValueError(f"minibatch_size_schedule: a size is a whole number of samples, at least 1, not {size:g}")
    return sizes


@public
class CheckpointConfig:
    """When and where checkpoints are written, and whether to resume from an existing one.

    `frequency`: samples, or (number, DataUnit), between checkpoints; without it there is one, at the end, with 0 none.
    `restore`: resume from ``filename``, or if that does not exist from the last of the numbered files.
    `preserve_all`: keep all checkpoints, as ``filename0``, ``filename1`` …; the last one also as ``filename``.

    Errors: ValueError for an empty name, a frequency without a name, or an invalid one.

    >>> config = CheckpointConfig('digits', frequency=(10, DataUnit.sweep), preserve_all=True)
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] | None,
        frequency: Frequency = None,
        restore: bool = True,
        preserve_all: bool = False,
    ) -> None:
        if filename == "":
            raise ValueError("CheckpointConfig: the name of the checkpoint is empty; give a path")
        if filename is None and frequency:
            raise ValueError("CheckpointConfig: a frequency without a filename saves nothing; give a path")
        self.filename = None if filename is None else os.fspath(filename)
        self.frequency = as_frequency(frequency, "CheckpointConfig")
        self.restore, self.preserve_all = restore, preserve_all


class _Validation:
    """A source of test data, and the sizes of its minibatches."""

    def __init__(
        self, source: Data | None, minibatch_size: Sizes, inputs: Inputs | None, criterion: Criterion | None
    ) -> None:
        self.source, self.inputs = as_source(source, inputs, criterion, max_samples=FULL_DATA_SWEEP)
        self.minibatch_size = as_sizes(minibatch_size)

    def run(
        self, trainer: TrainerCore, inputs: Inputs, max_samples: float, device: DeviceDescriptor | None
    ) -> tuple[float, int, int]:
        """The average metric, and the numbers of samples and minibatches, from where the source is."""
        if self.source is None:
            return 0.0, 0, 0
        error, samples, minibatches = 0.0, 0, 0
        while samples < max_samples:
            size = int(min(self.minibatch_size[samples], max_samples - samples))
            minibatch = next_minibatch(self.source, size, self.inputs or inputs, device)
            if not minibatch:
                break
            total, count = trainer.test_sum(minibatch)
            error, samples, minibatches = error + total, samples + count, minibatches + 1
        trainer.summarize_test_progress()
        return error / samples if samples else math.nan, samples, minibatches


@public
class CrossValidationConfig(_Validation):
    """The data for tests during training, and how often they are run.

    `minibatch_source`: a source, or a tuple of arrays in the order of the arguments of `criterion`.
    Each test begins where the source is, and leaves it, and that of the training, where they were.
    `frequency`: samples, or (number, DataUnit), between tests; without it there is one, at the end, with 0 none.
    `callback`: ``callback(index, average_error, num_samples, num_minibatches)`` after each test; False ends training.
    `model_inputs_to_streams`: {argument: stream}, by default those of the training.

    Units: `minibatch_size` and `max_samples`, the limit of one test, are in samples.
    Errors: ValueError for a frequency without source and callback, or for arrays without criterion.

    >>> config = CrossValidationConfig(callback=lambda index, error, samples, minibatches: error > 0.01, frequency=1000)
    """

    def __init__(
        self,
        minibatch_source: Data | None = None,
        frequency: Frequency = None,
        minibatch_size: Sizes = 32,
        callback: Callable[[int, float, int, int], bool] | None = None,
        max_samples: int | None = None,
        model_inputs_to_streams: Inputs | None = None,
        criterion: Criterion | None = None,
        source: Data | None = None,
        mb_size: Sizes | None = None,
    ) -> None:
        data = minibatch_source if source is None else source
        super().__init__(data, minibatch_size if mb_size is None else mb_size, model_inputs_to_streams, criterion)
        if data is None and callback is None and frequency:
            raise ValueError("CrossValidationConfig: a frequency needs a minibatch_source or a callback, or both")
        self.frequency = as_frequency(frequency, "CrossValidationConfig")
        self.callback, self.max_samples = callback, max_samples

    def run(
        self, trainer: TrainerCore, inputs: Inputs, max_samples: float, device: DeviceDescriptor | None
    ) -> tuple[float, int, int]:
        """Those of a test, which leaves the source where it is."""
        with unmoved(self.source):
            return super().run(trainer, inputs, max_samples, device)


@public
class TestConfig(_Validation):
    """The data for a test at the end of training; without a source there is none. See ``CrossValidationConfig``.

    Units: `minibatch_size` in samples.
    Errors: ValueError for arrays without criterion.

    >>> import numpy as np
    >>> import cntkjax as C
    >>> x = C.input_variable(1)
    >>> config = TestConfig((np.ones((4, 1), np.float32),), minibatch_size=2, criterion=C.square(x))
    """

    __test__ = False  # for pytest, which collects classes with such names

    def __init__(
        self,
        minibatch_source: Data | None = None,
        minibatch_size: Sizes = 32,
        model_inputs_to_streams: Inputs | None = None,
        criterion: Criterion | None = None,
        source: Data | None = None,
        mb_size: Sizes | None = None,
    ) -> None:
        data = minibatch_source if source is None else source
        super().__init__(data, minibatch_size if mb_size is None else mb_size, model_inputs_to_streams, criterion)


class _Action:
    """A callback that runs once per period, and at the end if training has advanced since the last time.

    `frequency`: the length of a period; if that is 0, it never runs. The callback gets the number of the period, from
    0; False from it ends training.
    """

    def __init__(self, frequency: tuple[int, DataUnit], callback: Callable[[int], bool | None]) -> None:
        (self._period, self._unit), self._callback = frequency, callback
        self._periods = self._last = 0

    def skip_to(self, progress: Progress) -> None:
        """Skip the periods before a checkpoint that training resumes from."""
        self._last = _count(progress, self._unit)
        self._periods = self._last // self._period if self._period else 0

    def run(self, progress: Progress, at_end: bool = False) -> bool:
        """Call the callback if it is due; False if training should end."""
        now = _count(progress, self._unit)
        periods = now // self._period if self._period else 0
        is_due = periods > self._periods or (at_end and now > self._last)
        if not (self._period and is_due):
            return True
        number, self._periods, self._last = self._periods, periods, now
        return self._callback(number) is not False


class _SessionCore:
    """The implementation of `TrainingSession`, with its arguments. `session` has the callbacks that users define."""

    def __init__(
        self,
        session: TrainingSession,
        trainer: Trainer,
        mb_source: SessionSource,
        mb_size: Sizes,
        model_inputs_to_streams: Inputs | None,
        max_samples: int | None,
        progress_frequency: Frequency,
        checkpoint_config: CheckpointConfig | None,
        cv_config: CrossValidationConfig | None,
        test_config: TestConfig | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._session = session
        if trainer is None:
            raise ValueError("training_session: needs a trainer: give training_session(trainer, ...)")
        if mb_source is None:
            raise ValueError("training_session: needs a minibatch source, such as a MinibatchSource: give mb_source")
        if not model_inputs_to_streams:
            raise ValueError("training_session: model_inputs_to_streams is empty; give {argument: stream, ...}")
        if max_samples is not None and max_samples <= 0:
            raise ValueError(f"training_session: max_samples has to be positive, not {max_samples}; None is no limit")
        self._trainer: TrainerCore = unwrap(trainer)
        self._callbacks = CallbackList(trainer, callbacks)
        self._epoch = EpochAverages()
        if callbacks:
            self._trainer.writers.append(self._epoch)
        self._source, self._inputs = mb_source, model_inputs_to_streams
        self._sizes = as_sizes(mb_size)
        self._max_samples = math.inf if max_samples in (None, INFINITELY_REPEAT) else max_samples
        self._checkpoints, self._cv, self._test = checkpoint_config, cv_config, test_config
        self._saved_at: Progress | None = None
        self._actions = [_Action(as_frequency(progress_frequency, "training_session"), self._summarize)]
        if cv_config is not None:
            self._actions.append(_Action(cv_config.frequency, self._cross_validate))
        if checkpoint_config is not None and checkpoint_config.filename is not None:
            place = len(self._actions) if callbacks else 0  # callbacks change what it keeps
            self._actions.insert(place, _Action(checkpoint_config.frequency, self._checkpoint))

    def train(self, device: DeviceDescriptor | None = None) -> None:
        """Train, from the last checkpoint if there is one. Checkpoints are written in the background.

        Errors: ValueError if a source never ends and no limit is given; OSError if a checkpoint cannot be written.
        """
        self._check_limits()
        self._device, self._stopped = device, False
        self._restore()
        total = int(self._max_samples) if math.isfinite(self._max_samples) else None
        self._trainer.begin_session(total)
        self._callbacks.on_train_begin()
        try:
            self._train()
        finally:
            self._trainer.wait_for_checkpoint()
        if self._test is not None:
            self._test.run(self._trainer, self._inputs, math.inf, device)

    def _train(self) -> None:
        trainer, continues = self._trainer, True
        while continues:  # the last minibatch is empty
            self._session.on_minibatch_start()
            trained = trainer.train_minibatch(self._next_minibatch())
            if trained:
                self._callbacks.on_train_batch_end()
            self._stopped |= self._session.on_minibatch_end() is False
            continues = trained and self._run_actions() and not self._callbacks.stop_training
        for action in self._actions:
            action.run(trainer.progress, at_end=True)
        if self._callbacks.callbacks:
            self._callbacks.on_train_end()
            self._saved_at = None  # they may have changed the parameters
        self._save_last()

    def get_minibatch_size(self) -> int:
        """The size of the next minibatch, in samples."""
        progress = self._trainer.progress
        return int(self._sizes.at(progress.samples, progress.sweeps))

    def restore_from_checkpoint(self, checkpointFileName: str | os.PathLike[str]) -> None:
        """Resume from this checkpoint of a training session.

        Errors: as of ``Trainer.restore_from_checkpoint``; ValueError if no training session wrote it.
        """
        filename = os.fspath(checkpointFileName)
        external = self._trainer.restore_from_checkpoint(filename)
        if _SOURCE not in external:
            raise ValueError(
                f"checkpoint {filename!r} was not written by a training session: it lacks {_SOURCE}; "
                "restore it with Trainer.restore_from_checkpoint"
            )
        self._source.restore_from_checkpoint(external[_SOURCE])
        self._callbacks.restore_from_checkpoint(external.get(_CALLBACKS, {}))
        for action in self._actions:
            action.skip_to(self._trainer.progress)
        self._saved_at = self._trainer.progress

    # ---- parts
    def _run_actions(self) -> bool:
        """Run all actions that are due; False if any of them ends training."""
        continues = [action.run(self._trainer.progress) for action in self._actions]
        return all(continues)

    def _check_limits(self) -> None:
        limited = {
            "Train": math.isfinite(self._max_samples) or not self._source.is_infinite(),
            "Cross validation": self._cv is None or self._cv.max_samples is not None or _ends(self._cv.source),
            "Test": self._test is None or _ends(self._test.source),
        }
        for purpose, is_limited in limited.items():
            if not is_limited:
                raise ValueError(
                    f"{purpose} minibatch source must have a limited number of samples or sweeps: give max_samples, or "
                    "max_sweeps=1 to the source"
                )

    def _next_minibatch(self) -> dict[Variable, MinibatchData]:
        samples_seen = self._trainer.progress.samples
        remaining = self._max_samples - samples_seen
        if remaining <= 0 or self._stopped:
            return {}
        size, part = self.get_minibatch_size(), (0, 1)
        if self._trainer.distributed.is_sharded(samples_seen):
            part = workers.rank(), workers.size()
            last: Any = self._trainer.parameter_learners[-1]  # which decides, as in CNTK
            size *= last.minibatch_size_scale_factor()
        return next_minibatch(self._source, int(min(size, remaining)), self._inputs, self._device, part)

    def _summarize(self, number: int) -> None:
        self._trainer.summarize_training_progress()
        if self._callbacks.callbacks:
            self._callbacks.on_epoch_end(self._epoch.averages)

    def _cross_validate(self, number: int) -> bool:
        assert self._cv is not None
        limit = math.inf if self._cv.max_samples is None else self._cv.max_samples
        self._session.on_cross_validation_start(number)
        with unmoved(self._source):  # the data may be of this source, or the callback may read from it
            result = self._cv.run(self._trainer, self._inputs, limit, self._device)
            self._callbacks.on_validation_end({"val_metric": result[0]} if result[1] else {})
            return self._session.on_cross_validation_end(number, *result)

    def _checkpoint(self, number: int) -> None:
        assert self._checkpoints is not None
        self._session.on_checkpoint_start(number)
        self._save(f"{self._checkpoints.filename}{number if self._checkpoints.preserve_all else ''}")
        if type(self._session).on_checkpoint_end is not TrainingSession.on_checkpoint_end:  # it may read the files
            self._trainer.wait_for_checkpoint()
        self._session.on_checkpoint_end(number)

    def _save(self, filename: str) -> None:
        external = {_SOURCE: self._source.get_checkpoint_state()}
        if self._callbacks.callbacks:
            external[_CALLBACKS] = self._callbacks.get_checkpoint_state()
        self._trainer.save_checkpoint(filename, external, wait=False)
        self._saved_at = self._trainer.progress

    def _save_last(self) -> None:
        config = self._checkpoints
        if config is None or config.filename is None or not config.frequency[0]:
            return
        if config.preserve_all or self._saved_at != self._trainer.progress:
            self._save(config.filename)

    def _restore(self) -> None:
        config = self._checkpoints
        filename = None if config is None or not config.restore else _last_checkpoint(config.filename)
        if filename is None:
            return
        print(f"Restoring training session from the checkpoint '{filename}'", file=sys.stderr)
        self.restore_from_checkpoint(filename)


@public
@delegates_to(_SessionCore)
class TrainingSession(_SessionCore):
    """Trains to the end of the data, or until ``max_samples``.

    A checkpoint, a progress summary and a cross validation that are due at the same time are run in this order; with
    callbacks, which learn from the other two, the checkpoint is last. At the end each is run once more if training has
    advanced since, then the last checkpoint is written and the test is run.
    A subclass may override the ``on_`` methods.

    `mb_size`: the minibatch size, or the result of ``minibatch_size_schedule``.
    `model_inputs_to_streams`: {argument: stream of ``mb_source``}.
    `progress_frequency`: samples, or (number, DataUnit), between summaries of the progress writers; None: one at the
    end, 0: none.
    `callbacks`: see `cntkjax.train.callbacks`; an extension. An epoch of theirs ends with each of these summaries.

    Units: `mb_size` and `max_samples` are in samples, of all workers.
    Errors: ValueError for missing arguments.
    Source: CNTK 2.7 (the order of events was recorded from it).
    """

    def __init__(
        self,
        trainer: Trainer,
        mb_source: SessionSource,
        mb_size: Sizes,
        model_inputs_to_streams: Inputs | None,
        max_samples: int | None,
        progress_frequency: Frequency,
        checkpoint_config: CheckpointConfig | None,
        cv_config: CrossValidationConfig | None,
        test_config: TestConfig | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.cv_callback = None if cv_config is None else cv_config.callback
        self.__wrapped__ = _SessionCore(
            self, trainer, mb_source, mb_size, model_inputs_to_streams, max_samples, progress_frequency,
            checkpoint_config, cv_config, test_config, callbacks,
        )

    def on_minibatch_start(self) -> None:
        """Called before each minibatch is read."""

    def on_minibatch_end(self) -> bool:
        """Called after each minibatch, and once more at the end of the data; training ends if it returns False."""
        return True

    def on_checkpoint_start(self, index: int) -> None:
        """Called before each checkpoint except the last one, which has no number."""

    def on_checkpoint_end(self, index: int) -> None:
        """Called when the files of such a checkpoint are written."""

    def on_cross_validation_start(self, index: int) -> None:
        """Called before each cross validation."""

    def on_cross_validation_end(
        self, index: int, average_error: Any, num_samples: int, num_minibatches: int
    ) -> bool:
        """Called after each cross validation; training ends if it returns False.

        Units: the error is per sample; a float, which may be NaN, as an argument that is declared float may not.
        """
        callback = self.cv_callback
        return callback is None or callback(index, average_error, num_samples, num_minibatches)


@public
def training_session(
    trainer: Trainer,
    mb_source: SessionSource,
    mb_size: Sizes,
    model_inputs_to_streams: Inputs | None,
    progress_frequency: Frequency = None,
    max_samples: int | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    cv_config: CrossValidationConfig | None = None,
    test_config: TestConfig | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainingSession:
    """A session whose ``train()`` runs the whole training; see ``TrainingSession`` for the arguments.

    >>> import cntkjax as C, numpy as np
    >>> x, y = C.input_variable(1), C.input_variable(1)
    >>> z = C.times(x, C.parameter((1, 1)))
    >>> rate = C.learning_parameter_schedule_per_sample(0.1)
    >>> trainer = C.Trainer(z, C.squared_error(z, y), C.sgd(z.parameters, rate))
    >>> ones = np.ones((8, 1), np.float32)
    >>> source = C.io.MinibatchSourceFromData({"x": ones, "y": 3 * ones})
    >>> training_session(trainer, source, 4, {x: source.streams.x, y: source.streams.y}, max_samples=80).train()
    >>> trainer.total_number_of_samples_seen, [round(float(w), 2) for w in z.parameters[0].value.ravel()]
    (80, [3.0])
    """
    return TrainingSession(
        trainer, mb_source, mb_size, model_inputs_to_streams, max_samples, progress_frequency, checkpoint_config,
        cv_config, test_config, callbacks,
    )


def as_frequency(frequency: Frequency, where: str) -> tuple[int, DataUnit]:
    """(number, unit): 0 means never, and `sys.maxsize`, for None, once, at the end."""
    frequency = sys.maxsize if frequency is None else frequency
    number, unit = frequency if isinstance(frequency, tuple) else (frequency, DataUnit.sample)
    try:
        number, unit = operator.index(number), DataUnit(unit)
    except (TypeError, ValueError):
        expected = "a number of samples or a pair (number, DataUnit)"
        raise ValueError(f"{where}: a frequency is {expected}, not {frequency!r}") from None
    if number < 0:
        raise ValueError(f"{where}: a frequency is not negative; this one is {number}: give None for once, at the end")
    return number, unit


def as_sizes(sizes: Sizes) -> MinibatchSizeSchedule:
    """A schedule of minibatch sizes, from one or from a single size."""
    if isinstance(sizes, MinibatchSizeSchedule):
        return sizes
    if not isinstance(sizes, int):
        raise ValueError(f"a minibatch size is a number or the result of minibatch_size_schedule(), not {sizes!r}")
    return minibatch_size_schedule(sizes)


def _count(progress: Progress, unit: DataUnit) -> int:
    counts = {
        DataUnit.sample: progress.samples, DataUnit.minibatch: progress.minibatches, DataUnit.sweep: progress.sweeps
    }
    return counts[unit]


def _ends(source: SessionSource | None) -> bool:
    return source is None or not source.is_infinite()


def _last_checkpoint(filename: str | None) -> str | None:
    """The checkpoint of this name, or else the one with the highest number appended to it."""
    if filename is None or exists(filename):
        return filename
    path = Path(filename)
    numbered = re.compile(re.escape(path.name) + rf"(\d+)({re.escape(SUFFIX)})?")
    folder = os.listdir(path.parent) if path.parent.is_dir() else []
    numbers = [int(match[1]) for name in folder if (match := numbered.fullmatch(name))]
    return f"{filename}{max(numbers)}" if numbers else None


__all__ = [
    "CheckpointConfig", "CrossValidationConfig", "DataUnit", "TestConfig", "TrainingSession", "minibatch_size_schedule",
    "training_session", "use_default_device",
]
