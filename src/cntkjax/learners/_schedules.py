"""Schedules: training parameters that depend on the number of samples or sweeps seen: rates, momentums, noise."""

from __future__ import annotations

import math
import numbers
import operator
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from enum import Enum
from itertools import accumulate
from typing import Any, Self

import numpy as np

from .._user_code import warn
from ..formats.checkpoint import Rates, rates_record, read_rates
from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..io._streams import FULL_DATA_SWEEP as SWEEP_OF_READERS

IGNORE = 0
"""As a minibatch size: a value refers to a minibatch of any size, and the learner averages gradients."""

FULL_DATA_SWEEP = 0
"""As an epoch size: the entries of a schedule count sweeps over the data, not samples."""

Entries = float | Sequence[float | tuple[int, float]]


@public
class UnitType(Enum):
    """What the values of a deprecated schedule refer to.

    >>> [unit.name for unit in UnitType]
    ['sample', 'minibatch']
    """

    sample = "sample"
    minibatch = "minibatch"


# Of a list it has to be whole. A single number has no epochs: scripts give the quotient of sizes, or, as in CNTK 2.0's
# beta versions, the unit in its place.
EpochSize = int | float | UnitType | None


class TrainingParameterSchedule:
    """A piecewise constant function of the number of samples (or sweeps) seen.

    ``schedule[count]`` is the value at ``count`` samples, or sweeps if :meth:`is_sweep_based`. The last value holds for
    all later counts.

    Units: ``epoch_size`` is in samples (0 or ``cntkjax.io.FULL_DATA_SWEEP``: one sweep over the data).
           ``minibatch_size`` is the number of samples that the values refer to (``IGNORE``: a minibatch of any size).
    Errors: ValueError for anything but a number or a list of numbers or (epochs, value) pairs, and for negative sizes;
            RuntimeError for an empty list, and for 0 epochs before the last value; TypeError for counts and sizes that
            are not whole numbers.

    >>> rate = TrainingParameterSchedule([(2, 0.1), 0.05], epoch_size=100)
    >>> rate[199], rate[200], rate[10**6]
    (0.1, 0.05, 0.05)
    """

    full_data_sweep = FULL_DATA_SWEEP
    ignored_minibatch_size = IGNORE

    def __init__(
        self,
        schedule: Entries,
        epoch_size: EpochSize = None,
        minibatch_size: int | None = None,
        *,
        what: str = "schedule",
    ) -> None:
        if isinstance(schedule, numbers.Real):
            if epoch_size is not None:
                warn(f"{what}: a single number never changes, so epoch_size is ignored", RuntimeWarning)
            schedule, epoch_size = [float(schedule)], None
        if not isinstance(schedule, list):
            raise ValueError(f"{what} must be a number or a list, not {schedule!r} of type {type(schedule).__name__}")
        if not schedule:
            raise RuntimeError(f"{what} is an empty list: give at least one value")
        self.entries = tuple(_entry(item, what) for item in schedule)
        if not all(epochs for epochs, _ in self.entries[:-1]):
            raise RuntimeError(f"{what}: only the last value may be for 0 epochs, for all that follow: {schedule}")
        if not epoch_size or epoch_size == SWEEP_OF_READERS:
            epoch_size = FULL_DATA_SWEEP
        self.epoch_size = _size(epoch_size, "epoch_size")
        self.minibatch_size = _size(minibatch_size or IGNORE, "minibatch_size")
        self.is_minibatch_size_explicitly_specified = minibatch_size is not None
        unit = self.epoch_size or 1
        self._values = [value for _, value in self.entries]
        self._ends = list(accumulate(epochs * unit for epochs, _ in self.entries[:-1]))

    def __getitem__(self, count: int) -> float:
        if not hasattr(count, "__index__") or isinstance(count, np.ndarray):
            raise TypeError(f"the count of a schedule is a whole number, not {count!r}")
        count = operator.index(count)
        if count < 0:
            raise OverflowError(f"a schedule begins at 0: there is no value at {count}; give a count from 0 on")
        return self._values[bisect_right(self._ends, count)]

    def is_sweep_based(self) -> bool:
        """Whether ``schedule[count]`` takes a number of sweeps, not of samples."""
        return self.epoch_size == FULL_DATA_SWEEP

    def at(self, samples: int, sweeps: int) -> float:
        """The value after this many samples and sweeps.

        >>> learning_parameter_schedule([0.1, 0.01]).at(samples=5000, sweeps=1)
        0.01
        """
        return self._values[bisect_right(self._ends, samples if self.epoch_size else sweeps)]

    def transform(self, function: Callable[[float], float]) -> TrainingParameterSchedule:
        """The same schedule with every value mapped.

        >>> learning_parameter_schedule([1, 2], epoch_size=8).transform(lambda value: value / 2)[8]
        1.0
        """
        values = [(epochs, function(value)) for epochs, value in self.entries]
        return self._with(values, self.minibatch_size if self.is_minibatch_size_explicitly_specified else None)

    def serialize(self) -> Dictionary:
        """The schedule as stored in checkpoints: values by the count of samples or sweeps up to which they hold.

        >>> TrainingParameterSchedule([0.1, 0.2], 10, 3).serialize()["schedule"]
        {'10': 0.1, '20': 0.2}
        """
        return Dictionary(rates_record(Rates(self.entries, self.epoch_size, self.minibatch_size)))

    @classmethod
    def deserialize(cls, record: Mapping[str, Any]) -> Self:
        """The schedule that `serialize` returned this record of. Errors: FormatError if the record is damaged."""
        rates = read_rates(dict(record), "the record of a schedule")
        return cls(list(rates.entries), rates.epoch_size or None, rates.minibatch_size)

    def take_minibatch_size(self, minibatch_size: int | None) -> None:
        """Refer to this many samples unless the schedule was made with a minibatch size."""
        if minibatch_size is not None and not self.is_minibatch_size_explicitly_specified:
            self.minibatch_size = minibatch_size

    def per(self, minibatch_size: int) -> TrainingParameterSchedule:
        """The same values, for this many samples, whatever the minibatch size of this schedule."""
        return self._with(list(self.entries), minibatch_size)

    def _with(self, entries: list[tuple[int, float]], minibatch_size: int | None) -> TrainingParameterSchedule:
        return TrainingParameterSchedule(entries, self.epoch_size, minibatch_size)

    def _key(self) -> tuple[object, ...]:
        return self.entries, self.epoch_size, self.minibatch_size

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, TrainingParameterSchedule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        values = self._values[0] if len(self._values) == 1 else list(self.entries)
        sizes = f"epoch_size={self.epoch_size}, minibatch_size={self.minibatch_size}"
        return f"TrainingParameterSchedule({values}, {sizes})"


Schedulable = Entries | TrainingParameterSchedule


def _entry(item: object, what: str) -> tuple[int, float]:
    """``0.1`` -> (1, 0.1); ``(3, 0.1)`` is itself: 0.1 for three epochs."""
    value = item[1] if isinstance(item, Sequence) and len(item) == 2 else item
    if isinstance(value, numbers.Real) and math.isnan(value):
        raise ValueError(f"{what}: {item!r} is not a number that parameters could be updated with")
    if isinstance(item, numbers.Real):
        return 1, float(item)
    if isinstance(item, Sequence) and len(item) == 2 and isinstance(item[1], numbers.Real):
        return _size(item[0], f"{what}: a number of epochs"), float(item[1])
    raise ValueError(
        f"{what}: {item!r} is neither a number nor a pair (number of epochs, value); give a list such as "
        "[0.1, (3, 0.05)]"
    )


def _size(value: Any, what: str) -> int:
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {value!r}") from None
    if size < 0:
        raise ValueError(f"{what} must not be negative, but is {size}")
    return size


def _schedule(
    values: Schedulable, minibatch_size: int | None, epoch_size: EpochSize, what: str = "schedule"
) -> TrainingParameterSchedule:
    if isinstance(values, TrainingParameterSchedule):
        return values
    return TrainingParameterSchedule(values, epoch_size, minibatch_size, what=what)


@public
def learning_parameter_schedule(
    schedule: Schedulable, minibatch_size: int | None = None, epoch_size: EpochSize = None
) -> TrainingParameterSchedule:
    """A schedule of learning rates (or any other parameter of a learner).

    ``schedule`` is a number, a list of values of one epoch each, or a list of (epochs, value) pairs; a schedule is
    returned unchanged.

    Units: values refer to ``minibatch_size`` samples; None or ``IGNORE``: to a minibatch of any size.
           ``epoch_size`` in samples; None: sweeps over the data.
    Errors: as :class:`TrainingParameterSchedule`.
    Source: CNTK 2.7.

    >>> rate = learning_parameter_schedule([0.1, (3, 0.05), 0.01], minibatch_size=32, epoch_size=1000)
    >>> rate[0], rate[1000], rate[4000], rate.minibatch_size
    (0.1, 0.05, 0.01, 32)
    """
    return _schedule(schedule, minibatch_size, epoch_size)


@public
def learning_parameter_schedule_per_sample(
    schedule: Schedulable, epoch_size: EpochSize = None
) -> TrainingParameterSchedule:
    """A schedule whose values refer to single samples; see :func:`learning_parameter_schedule`.

    >>> learning_parameter_schedule_per_sample(0.003).minibatch_size
    1
    """
    return _schedule(schedule, 1, epoch_size)


@public
def training_parameter_schedule(
    schedule: Schedulable, unit: UnitType | str | None = UnitType.minibatch, epoch_size: EpochSize = None
) -> TrainingParameterSchedule:
    """A schedule whose values refer to a sample or a minibatch of any size; see :func:`learning_parameter_schedule`.

    Errors: ValueError if ``unit`` is not a :class:`UnitType`.

    >>> training_parameter_schedule([0.1, 0.2], UnitType.sample, epoch_size=5).minibatch_size
    1
    """
    if isinstance(schedule, TrainingParameterSchedule):
        return _explicit(schedule)
    # CNTK accepts the name as text, but takes it for a minibatch even if it is "sample".
    per_sample = UnitType(unit) is UnitType.sample and isinstance(unit, UnitType)
    return _schedule(schedule, 1 if per_sample else IGNORE, epoch_size)


def _explicit(schedule: TrainingParameterSchedule) -> TrainingParameterSchedule:
    """A schedule passed where one is made: as in CNTK it is returned, and keeps its minibatch size in learners."""
    schedule.is_minibatch_size_explicitly_specified = True
    return schedule


@public
def learning_rate_schedule(
    lr: Schedulable, unit: UnitType | str | None, epoch_size: EpochSize = None
) -> TrainingParameterSchedule:
    """Deprecated: use :func:`learning_parameter_schedule` or :func:`learning_parameter_schedule_per_sample`.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     learning_rate_schedule(0.1, UnitType.sample)
    TrainingParameterSchedule(0.1, epoch_size=0, minibatch_size=1)
    """
    warn(
        "learning_rate_schedule is deprecated: use learning_parameter_schedule(lr) for UnitType.minibatch, "
        "learning_parameter_schedule_per_sample(lr) for UnitType.sample",
        DeprecationWarning,
    )
    return training_parameter_schedule(lr, unit, epoch_size)


@public
def momentum_schedule(
    momentum: Schedulable, epoch_size: EpochSize = None, minibatch_size: int | None = None
) -> TrainingParameterSchedule:
    """A schedule of momentums: the fraction of the smoothed gradient that remains after ``minibatch_size`` samples.

    Units: None or ``IGNORE``: after a minibatch of any size. Otherwise the fraction for n samples is
           ``momentum ** (n / minibatch_size)``.

    >>> momentum_schedule([0.9, 0.99], epoch_size=10)[10]
    0.99
    """
    return at_most_1(_schedule(momentum, minibatch_size, epoch_size, "momentum"))


@public
def momentum_schedule_per_sample(momentum: Schedulable, epoch_size: EpochSize = None) -> TrainingParameterSchedule:
    """A schedule of momentums per sample; see :func:`momentum_schedule`.

    >>> momentum_schedule_per_sample(0.999).minibatch_size
    1
    """
    return at_most_1(_schedule(momentum, 1, epoch_size, "momentum"))


def at_most_1(momentum: TrainingParameterSchedule) -> TrainingParameterSchedule:
    """The schedule of a momentum. Errors: ValueError for one above 1, with which smoothed gradients grow for ever."""
    largest = max(value for _, value in momentum.entries)
    if largest > 1:
        raise ValueError(f"momentum = {largest} is above 1: smoothed gradients would grow for ever; give at most 1")
    return momentum


@public
def momentum_as_time_constant_schedule(
    momentum: Schedulable, epoch_size: EpochSize = None
) -> TrainingParameterSchedule:
    """Momentums given as the number of samples after which 1/e of the smoothed gradient remains; 0: no momentum.

    >>> momentum_as_time_constant_schedule(1100)[0]
    0.9990913221888589
    >>> momentum_as_time_constant_schedule(0)[0]
    0.0
    """
    if isinstance(momentum, TrainingParameterSchedule):
        return _explicit(momentum)
    constants = _schedule(momentum, 1, epoch_size, "momentum")
    if min(constant for _, constant in constants.entries) < 0:
        raise ValueError(f"momentum = {momentum!r}: a time constant is a number of samples, which is at least 0")
    return constants.transform(lambda constant: math.exp(-1 / constant) if constant else 0.0)


def momentum_after(schedule: TrainingParameterSchedule, samples: int, sweeps: int, sample_count: int) -> float:
    """The momentum for a minibatch of ``sample_count`` samples, after this many samples and sweeps.

    >>> momentum_after(momentum_schedule(0.25, minibatch_size=4), 0, 0, sample_count=2)
    0.5
    """
    value = schedule.at(samples, sweeps)
    if schedule.minibatch_size == IGNORE:
        return value
    return float(np.float64(value) ** (sample_count / schedule.minibatch_size))


def _infer_learning_parameter_schedule(
    number_or_schedule: Schedulable,
    ref_minibatch_size: int | None,
    epoch_size: int | None,
    use_mean_gradient: bool | None = None,
) -> TrainingParameterSchedule:
    """A learner's option as a schedule of its own: plain numbers refer to the learner's minibatch size.

    ``use_mean_gradient`` turns a rate per sample into one per minibatch. As in CNTK, a schedule that is given keeps
    what it refers to here, and so do learners that are made of it later.
    """
    if isinstance(number_or_schedule, TrainingParameterSchedule):
        rate = number_or_schedule
        rate.take_minibatch_size(ref_minibatch_size)
    elif isinstance(number_or_schedule, numbers.Real | list):
        rate = TrainingParameterSchedule(number_or_schedule, epoch_size, ref_minibatch_size)
    else:
        raise ValueError(
            f"a training parameter must be a number, a list or a schedule, not {number_or_schedule!r} of type "
            f"{type(number_or_schedule).__name__}; schedules are made by learning_parameter_schedule(), "
            "momentum_schedule(), ..."
        )
    if use_mean_gradient and rate.minibatch_size == 1:
        rate.minibatch_size = IGNORE
    return copy(rate)


def _infer_learning_rate_schedule_and_ref_minibatch_size(
    use_mean_gradient: bool | None,
    ref_minibatch_size: int | None,
    schedule: Schedulable,
    epoch_size: int | None,
) -> tuple[TrainingParameterSchedule, int | None]:
    """The rate and minibatch size of a learner from its arguments; ``use_mean_gradient`` is the old name of IGNORE."""
    rate = _infer_learning_parameter_schedule(schedule, ref_minibatch_size, epoch_size, use_mean_gradient)
    return rate, IGNORE if use_mean_gradient and ref_minibatch_size is None else ref_minibatch_size


def _verify_learning_rate_type(learning_rate: TrainingParameterSchedule) -> None:
    _verify(learning_rate, "learning_rate", "learning_parameter_schedule")


def _verify_momentum_type(momentum: TrainingParameterSchedule) -> None:
    _verify(momentum, "momentum", "momentum_schedule")


def _verify(value: object, what: str, factory: str) -> None:
    if not isinstance(value, TrainingParameterSchedule):
        raise ValueError(f"{what} must be a schedule, not {type(value).__name__}: make one with {factory}({value!r})")


__all__ = [
    "IGNORE", "UnitType", "learning_parameter_schedule", "learning_parameter_schedule_per_sample",
    "learning_rate_schedule", "momentum_as_time_constant_schedule", "momentum_schedule", "momentum_schedule_per_sample",
    "training_parameter_schedule",
]
