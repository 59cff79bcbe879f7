"""Values by epoch, and the conversions between values per minibatch and per sample."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

import numpy as np

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Schedule(Generic[N]):
    """Values by epoch: pairs (number of epochs, value); the last value holds for all later epochs. Epochs count from 0.

    >>> sizes = Schedule(((2, 128), (1, 1024)))
    >>> [sizes.at(epoch) for epoch in range(4)], sizes.epochs, str(sizes)
    ([128, 128, 1024, 1024], 3, '128*2:1024')
    """

    entries: tuple[tuple[int, N], ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(count for count, _ in self.entries))

    @property
    def epochs(self) -> int:
        """The number of epochs that are listed."""
        return self._ends[-1]

    def at(self, epoch: int) -> N:
        """The value in an epoch."""
        return self.entries[min(bisect_right(self._ends, epoch), len(self.entries) - 1)][1]

    def __str__(self) -> str:
        return ":".join(f"{value!r}*{count}" if count > 1 else f"{value!r}" for count, value in self.entries)


def combine(function: Callable[[float, float], float], a: Schedule[float], b: Schedule[int]) -> Schedule[float]:
    """The function of two schedules, epoch by epoch.

    >>> str(combine(lambda rate, size: rate / size, Schedule(((1, 1.0), (1, 0.5))), Schedule(((2, 10), (1, 100)))))
    '0.1:0.05:0.005'
    """
    begins = sorted({0, *a._ends[:-1], *b._ends[:-1]})
    counts: Sequence[int] = [*(end - begin for begin, end in pairwise(begins)), 1]
    return Schedule(tuple(
        (count, function(a.at(begin), b.at(begin))) for count, begin in zip(counts, begins, strict=True)
    ))


def rate_per_sample(rate: float, minibatch_size: int) -> float:
    """learningRatesPerSample, from learningRatesPerMB.

    >>> rate_per_sample(1.0, 128)
    0.0078125
    """
    return rate / minibatch_size


def single_precision(constant: float) -> float:
    """A time constant whose momentum of a sample is a float32, as CNTK holds it; that of momentumPerMB is not.

    >>> round(single_precision(2500), 1)
    2499.8
    """
    momentum = float(np.float32(math.exp(-1 / constant))) if constant else 0.0
    return -1 / math.log(momentum) if 0 < momentum < 1 else constant if momentum else 0.0


def momentum_time_constant(momentum: float, minibatch_size: int) -> float:
    """momentumAsTimeConstant in samples, from momentumPerMB.

    >>> round(momentum_time_constant(0.9, 128))
    1215
    """
    return -minibatch_size / math.log(momentum) if momentum > 0 else 0.0
