"""Training sessions: training to its end, with progress, checkpoints, cross validation and a final test."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from ..device import use_default_device
from ..formats.checkpoint import SUFFIX, exists
from ..graph.proxy import delegates_to, unwrap
from ..io import FULL_DATA_SWEEP, INFINITELY_REPEAT
from ..learners import TrainingParameterSchedule
from ..parallel import mpi
from ._sources import Inputs, as_source, next_minibatch
from .trainer import Seen, Trainer

_SOURCE = "TrainingMinibatchSource"  # the key of the source's state in a checkpoint, as CNTK has it


class DataUnit(IntEnum):
    """What frequencies count."""

    sample = 1
    minibatch = 2
    sweep = 0

    def __str__(self) -> str:
        return f"DataUnit.{self.name}"


Frequency = int | tuple[int, DataUnit] | None


class MinibatchSizeSchedule(TrainingParameterSchedule):
    """Sizes of minibatches by the number of samples seen: ``schedule[samples]``."""

    def __getitem__(self, count: int) -> int:
        return int(super().__getitem__(count))


def minibatch_size_schedule(schedule: Any, epoch_size: int = 1) -> MinibatchSizeSchedule:
    """Sizes of minibatches that change while training: a number, or a list of sizes or (epochs, size) pairs.

    Units: an entry of a list holds for ``epoch_size`` samples, or for that many epochs; the last one stays.
    Errors: ValueError for sizes that are not whole and positive; RuntimeError for an empty list.

    >>> sizes = minibatch_size_schedule([32, (2, 64), 128], epoch_size=1000)
    >>> sizes[999], sizes[1000], sizes[3000]
    (32, 64, 128)
    """
    if isinstance(schedule, (int, float)):
        made = MinibatchSizeSchedule(schedule)
    else:
        made = MinibatchSizeSchedule(schedule, epoch_size, what="minibatch_size_schedule")
    for _, size in made.entries:
        if size < 1 or not size.is_integer():
            raise ValueError(f"minibatch_size_schedule: a size is a whole number of samples, at least 1, not {size:g}")
    return made


class CheckpointConfig:
    """When and where checkpoints are written, and whether to go on from one that is there.

    `frequency`: samples, or (number, DataUnit), between checkpoints; without it there is one, at the end.
    `restore`: go on from ``filename``, or if that is not there from the last of the numbered ones.
    `preserve_all`: keep them all, as ``filename0``, ``filename1`` …; the last one also as ``filename``.

    Errors: ValueError for an empty name or a frequency that is none.
    """

    def __init__(
        self, filename: Any, frequency: Frequency = None, restore: bool = True, preserve_all: bool = False
    ) -> None:
        if filename == "":
            raise ValueError("CheckpointConfig: the name of the checkpoint is empty; give a path")
        self.filename = None if filename is None else os.fspath(filename)
        self.frequency = as_frequency(frequency, "CheckpointConfig")
        self.restore, self.preserve_all = restore, preserve_all


class _Validation:
    """Data that are tested on, and how many at once."""

    def __init__(self, source: Any, minibatch_size: Any, inputs: Inputs | None, criterion: Any) -> None:
        self.source, self.inputs = as_source(source, inputs, criterion, max_samples=FULL_DATA_SWEEP)
        self.minibatch_size = as_sizes(minibatch_size)
        self.start = None if source is None else self.source.get_checkpoint_state()

    def run(self, trainer: Trainer, inputs: Inputs, max_samples: float, device: Any) -> tuple[float, int, int]:
        """Average metric, samples and minibatches, from the source's beginning; a summary goes to the writers."""
        if self.source is None:
            return 0.0, 0, 0
        self.source.restore_from_checkpoint(self.start)
        error, samples, minibatches = 0.0, 0, 0
        while samples < max_samples:
            size = int(min(self.minibatch_size[samples], max_samples - samples))
            minibatch = next_minibatch(self.source, size, self.inputs or inputs, device)
            if not minibatch:
                break
            total, count = trainer.test_sum(minibatch)
            error, samples, minibatches = error + total, samples + count, minibatches + 1
        trainer.summarize_test_progress()
        return error / max(samples, 1), samples, minibatches


class CrossValidationConfig(_Validation):
    """What is tested on while training, and how often.

    `minibatch_source`: a source, or a tuple of arrays in the order of the arguments of `criterion`.
    `frequency`: samples, or (number, DataUnit), between tests; without it there is one, at the end.
    `callback`: ``callback(index, average_error, num_samples, num_minibatches)`` after each; False ends the training.
    `max_samples`: test on so many samples only.
    `model_inputs_to_streams`: {argument: stream}, by default those of the training.

    Errors: ValueError without source and callback, or for arrays without criterion.
    """

    def __init__(
        self,
        minibatch_source: Any = None,
        frequency: Frequency = None,
        minibatch_size: Any = 32,
        callback: Callable[[int, float, int, int], bool] | None = None,
        max_samples: int | None = None,
        model_inputs_to_streams: Inputs | None = None,
        criterion: Any = None,
        source: Any = None,
        mb_size: Any = None,
    ) -> None:
        given = minibatch_source if source is None else source
        if given is None and callback is None:
            raise ValueError("CrossValidationConfig: needs a minibatch_source or a callback, or both")
        super().__init__(given, minibatch_size if mb_size is None else mb_size, model_inputs_to_streams, criterion)
        self.frequency = as_frequency(frequency, "CrossValidationConfig")
        self.callback, self.max_samples = callback, max_samples


class TestConfig(_Validation):
    """What is tested on at the end of the training. Arguments as those of ``CrossValidationConfig``."""

    __test__ = False  # for pytest, which takes classes of such names for tests

    def __init__(
        self,
        minibatch_source: Any = None,
        minibatch_size: Any = 32,
        model_inputs_to_streams: Inputs | None = None,
        criterion: Any = None,
        source: Any = None,
        mb_size: Any = None,
    ) -> None:
        given = minibatch_source if source is None else source
        if given is None:
            raise ValueError("TestConfig: needs a minibatch_source")
        super().__init__(given, minibatch_size if mb_size is None else mb_size, model_inputs_to_streams, criterion)


class _Action:
    """Something done every so many units, and at the end if there was anything since the last time."""

    def __init__(self, frequency: tuple[int, DataUnit], do: Callable[[int], Any]) -> None:
        (self._every, self._unit), self._do = frequency, do
        self._periods = self._last = 0

    def skip(self, seen: Seen) -> None:
        """Whatever was due until here is done: training goes on from a checkpoint."""
        self._last = _count(seen, self._unit)
        self._periods = self._last // self._every if self._every else 0

    def run(self, seen: Seen, at_end: bool = False) -> bool:
        """Do it if it is due, with its number, which counts periods from 0; False if that says to stop."""
        now = _count(seen, self._unit)
        periods = now // self._every if self._every else 0
        if periods <= self._periods and not (at_end and now > self._last):
            return True
        number, self._periods, self._last = self._periods, periods, now
        return self._do(number) is not False


class _Session:
    """What stands behind a `TrainingSession`, with its arguments."""

    def __init__(
        self, session: TrainingSession, trainer: Any, mb_source: Any, mb_size: Any, model_inputs_to_streams: Any,
        max_samples: int | None, progress_frequency: Frequency, checkpoint_config: CheckpointConfig | None,
        cv_config: CrossValidationConfig | None, test_config: TestConfig | None,
    ) -> None:
        self._session = session
        if trainer is None:
            raise ValueError("training_session: needs a trainer")
        if mb_source is None:
            raise ValueError("training_session: needs a minibatch source")
        if not model_inputs_to_streams:
            raise ValueError("training_session: model_inputs_to_streams is empty; give {argument: stream, ...}")
        if max_samples is not None and max_samples <= 0:
            raise ValueError(f"training_session: max_samples has to be positive, not {max_samples}")
        self._trainer, self._source, self._inputs = unwrap(trainer), mb_source, model_inputs_to_streams
        self._sizes = as_sizes(mb_size)
        self._max_samples = math.inf if max_samples in (None, INFINITELY_REPEAT) else max_samples
        self._checkpoints, self._cv, self._test = checkpoint_config, cv_config, test_config
        self._saved_at: Seen | None = None
        self._actions = [_Action(as_frequency(progress_frequency, "training_session"), self._summarize)]
        if checkpoint_config is not None and checkpoint_config.filename is not None:
            self._actions.insert(0, _Action(checkpoint_config.frequency, self._checkpoint))
        if cv_config is not None:
            self._actions.append(_Action(cv_config.frequency, self._cross_validate))

    def train(self, device: Any = None) -> None:
        """Train, from the last checkpoint if there is one. Checkpoints are written while it goes on.

        Errors: ValueError if a source never ends and no limit is given; OSError if a checkpoint cannot be written.
        """
        self._check_limits()
        self._device, self._ended = device, False
        self._restore()
        total = int(self._max_samples) if math.isfinite(self._max_samples) else None
        self._trainer.begin_session(total)
        try:
            self._train()
        finally:
            self._trainer.wait_for_checkpoint()
        if self._test is not None:
            self._test.run(self._trainer, self._inputs, math.inf, device)

    def _train(self) -> None:
        trainer, going = self._trainer, True
        while going:  # the last minibatch is empty
            self._session.on_minibatch_start()
            trained = trainer.train_minibatch(self._next_minibatch())
            self._ended |= self._session.on_minibatch_end() is False
            going = trained and self._act()
        for action in self._actions:
            action.run(trainer.seen, at_end=True)
        self._save_last()

    def get_minibatch_size(self) -> int:
        """Size of the next minibatch, as the schedule says it."""
        seen = self._trainer.seen
        return int(self._sizes.at(seen.samples, seen.sweeps))

    def restore_from_checkpoint(self, filename: Any) -> None:
        """Go on from this checkpoint of a training session.

        Errors: as of ``Trainer.restore_from_checkpoint``; ValueError if no training session wrote it.
        """
        filename = os.fspath(filename)
        external = self._trainer.restore_from_checkpoint(filename)
        if _SOURCE not in external:
            raise ValueError(f"checkpoint {filename!r} was not written by a training session: it lacks {_SOURCE}")
        self._source.restore_from_checkpoint(external[_SOURCE])
        for action in self._actions:
            action.skip(self._trainer.seen)
        self._saved_at = self._trainer.seen

    # ---- parts
    def _act(self) -> bool:
        """Do all that is due; False if any of it says to stop."""
        going = [action.run(self._trainer.seen) for action in self._actions]
        return all(going)

    def _check_limits(self) -> None:
        limited = {
            "Train": math.isfinite(self._max_samples) or not self._source.is_infinite(),
            "Cross validation": self._cv is None or self._cv.max_samples is not None or _ends(self._cv.source),
            "Test": self._test is None or _ends(self._test.source),
        }
        for which, is_limited in limited.items():
            if not is_limited:
                raise ValueError(
                    f"{which} minibatch source must have a limited number of samples or sweeps: give max_samples, or "
                    "max_sweeps=1 to the source"
                )

    def _next_minibatch(self) -> dict[Any, Any]:
        seen = self._trainer.seen
        left = self._max_samples - seen.samples
        if left <= 0 or self._ended:
            return {}
        size, part = self.get_minibatch_size(), (0, 1)
        if self._trainer.together.shares(seen.samples):
            part = mpi.rank(), mpi.size()
            size *= self._trainer.parameter_learners[0].minibatch_size_scale_factor()
        return next_minibatch(self._source, int(min(size, left)), self._inputs, self._device, part)

    def _summarize(self, number: int) -> None:
        self._trainer.summarize_training_progress()

    def _cross_validate(self, number: int) -> bool:
        assert self._cv is not None
        limit = math.inf if self._cv.max_samples is None else self._cv.max_samples
        self._session.on_cross_validation_start(number)
        result = self._cv.run(self._trainer, self._inputs, limit, self._device)
        return self._session.on_cross_validation_end(number, *result)

    def _checkpoint(self, number: int) -> None:
        assert self._checkpoints is not None
        self._session.on_checkpoint_start(number)
        self._save(f"{self._checkpoints.filename}{number if self._checkpoints.preserve_all else ''}")
        if type(self._session).on_checkpoint_end is not TrainingSession.on_checkpoint_end:  # it may look for the files
            self._trainer.wait_for_checkpoint()
        self._session.on_checkpoint_end(number)

    def _save(self, filename: str) -> None:
        self._trainer.save_checkpoint(filename, {_SOURCE: self._source.get_checkpoint_state()}, wait=False)
        self._saved_at = self._trainer.seen

    def _save_last(self) -> None:
        config = self._checkpoints
        if config is None or config.filename is None:
            return
        if config.preserve_all or self._saved_at != self._trainer.seen:
            self._save(config.filename)

    def _restore(self) -> None:
        config = self._checkpoints
        found = None if config is None or not config.restore else _last_checkpoint(config.filename)
        if found is None:
            return
        print(f"Restoring training session from the checkpoint '{found}'")
        self.restore_from_checkpoint(found)


@delegates_to(_Session)
class TrainingSession(_Session):
    """Trains to the end of the data, or until ``max_samples``.

    A checkpoint, a line of progress and a cross validation that are due at once come in this order; at the end each
    comes once more if there was anything since the last one, then the last checkpoint and the test. A subclass may
    define the ``on_`` methods, which are called in between.

    `mb_size`: samples in a minibatch, or what ``minibatch_size_schedule`` gives.
    `model_inputs_to_streams`: {argument: stream of ``mb_source``}.
    `progress_frequency`: samples, or (number, DataUnit), between summaries of the progress writers.

    Errors: ValueError for missing parts.
    Source: CNTK 2.7 (the order of events was recorded from it).
    """

    def __init__(
        self,
        trainer: Trainer,
        mb_source: Any,
        mb_size: Any,
        model_inputs_to_streams: Inputs | None,
        max_samples: int | None,
        progress_frequency: Frequency,
        checkpoint_config: CheckpointConfig | None,
        cv_config: CrossValidationConfig | None,
        test_config: TestConfig | None,
    ) -> None:
        self.cv_callback = None if cv_config is None else cv_config.callback
        self.__wrapped__ = _Session(
            self, trainer, mb_source, mb_size, model_inputs_to_streams, max_samples, progress_frequency,
            checkpoint_config, cv_config, test_config,
        )

    def on_minibatch_start(self) -> None:
        """Called before each minibatch is read."""

    def on_minibatch_end(self) -> bool:
        """Called after each minibatch, and once more at the end of the data; the training ends if it returns False."""
        return True

    def on_checkpoint_start(self, index: int) -> None:
        """Called before each checkpoint but the last one, which has no number."""

    def on_checkpoint_end(self, index: int) -> None:
        """Called when the files of such a checkpoint are there."""

    def on_cross_validation_start(self, index: int) -> None:
        """Called before each cross validation."""

    def on_cross_validation_end(
        self, index: int, average_error: float, num_samples: int, num_minibatches: int
    ) -> bool:
        """Called after each cross validation; the training ends if it returns False."""
        callback = self.cv_callback
        return callback is None or callback(index, average_error, num_samples, num_minibatches)


def training_session(
    trainer: Trainer,
    mb_source: Any,
    mb_size: Any,
    model_inputs_to_streams: Inputs | None,
    progress_frequency: Frequency = None,
    max_samples: int | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    cv_config: CrossValidationConfig | None = None,
    test_config: TestConfig | None = None,
) -> TrainingSession:
    """A session whose ``train()`` does the whole training; see ``TrainingSession`` for the arguments.

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
        cv_config, test_config,
    )


def as_frequency(given: Frequency, where: str) -> tuple[int, DataUnit]:
    """(number, unit); 0 for only at the end."""
    number, unit = given if isinstance(given, tuple) else (given or 0, DataUnit.sample)
    try:
        number, unit = operator.index(number), DataUnit(unit)
    except (TypeError, ValueError):
        expected = "a number of samples or a pair (number, DataUnit)"
        raise ValueError(f"{where}: a frequency is {expected}, not {given!r}") from None
    if number < 0:
        raise ValueError(f"{where}: a frequency is not negative; this one is {number}")
    return number, unit


def as_sizes(given: Any) -> MinibatchSizeSchedule:
    """A minibatch size or its schedule as a schedule."""
    if isinstance(given, MinibatchSizeSchedule):
        return given
    if not isinstance(given, int):
        raise ValueError(f"a minibatch size is a number or what minibatch_size_schedule() gives, not {given!r}")
    return minibatch_size_schedule(given)


def _count(seen: Seen, unit: DataUnit) -> int:
    return {DataUnit.sample: seen.samples, DataUnit.minibatch: seen.minibatches, DataUnit.sweep: seen.sweeps}[unit]


def _ends(source: Any) -> bool:
    return source is None or not source.is_infinite()


def _last_checkpoint(filename: str | None) -> str | None:
    """The checkpoint of that name, otherwise that with the highest number behind it."""
    if filename is None or exists(filename):
        return filename
    path = Path(filename)
    numbered = re.compile(re.escape(path.name) + rf"(\d+)({re.escape(SUFFIX)})?")
    folder = os.listdir(path.parent) if path.parent.is_dir() else []
    numbers = [int(found[1]) for name in folder if (found := numbered.fullmatch(name))]
    return f"{filename}{max(numbers)}" if numbers else None


__all__ = [
    "CheckpointConfig", "CrossValidationConfig", "DataUnit", "TestConfig", "TrainingSession", "minibatch_size_schedule",
    "training_session", "use_default_device",
]
