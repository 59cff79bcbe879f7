"""Base of all progress writers: counts, accumulates, and decides when to write."""
from __future__ import annotations

import operator
import sys
import time
from collections import deque
from typing import Any, SupportsFloat, TypeAlias

from .._typing import Measured
from ..graph.arguments import public
from ..graph.proxy import delegates_to

Span: TypeAlias = tuple[Measured, Measured]  # a total at the previous write and at this one
Counts: TypeAlias = tuple[int, int]    # a count at the previous write and at this one

_PENDING = 64  # steps after which a loss is read; by then it is computed on any device


class LazySum:
    """A sum of numbers that may still be being computed; it reads them late, so that nothing waits for the device.

    >>> total = LazySum(1.0)
    >>> total.add(2.5, times=2)
    >>> float(total)
    6.0
    """

    def __init__(self, begin: float = 0.0) -> None:
        self._sum = begin
        self._pending: deque[tuple[SupportsFloat, float]] = deque()

    def add(self, value: SupportsFloat, times: float = 1) -> None:
        """Add ``value`` this many times."""
        self._pending.append((value, times))
        while len(self._pending) > _PENDING:
            self._read()

    def _read(self) -> None:
        value, times = self._pending.popleft()
        self._sum += float(value) * times

    def __float__(self) -> float:
        while self._pending:
            self._read()
        return self._sum


class _Tally:
    """Totals of one kind of update since the last summary, see ``ProgressWriter``."""

    def __init__(self, freq: int, first: int, sums: int) -> None:
        self.freq, self.first = freq, first
        self.total_updates = 0  # not reset by summaries
        self._width = sums
        self.reset()

    def reset(self) -> None:
        """Restart the totals, after a summary."""
        self.samples = self.updates = 0
        self.sums = [LazySum() for _ in range(self._width)]
        self._written: tuple[int, int, list[float]] = (0, 0, [0.0] * self._width)

    def add(self, samples: int, *values: SupportsFloat) -> bool:
        """Count an update; return whether it is time to write."""
        self.total_updates += 1
        self.updates += 1
        self.samples += samples
        for total, value in zip(self.sums, values, strict=True):
            total.add(value)
        return is_due(self.updates, self.freq, self.first)

    def replace(self, *averages: float) -> None:
        """Replace the sums since the last summary by others, given as averages over the samples."""
        for total, average in zip(self.sums, averages, strict=True):
            total.add(average * self.samples - float(total))

    def spans(self) -> tuple[Any, ...]:
        """Samples, updates and sums, each as (at the previous write, now)."""
        now = (self.samples, self.updates, [float(total) for total in self.sums])
        (samples, updates, sums), self._written = self._written, now
        return (samples, now[0]), (updates, now[1]), *zip(sums, now[2], strict=True)


def is_due(updates: int, freq: int, first: int) -> bool:
    """Whether totals are written after this many updates.

    >>> [n for n in range(1, 20) if is_due(n, freq=5, first=2)]
    [1, 2, 5, 10, 15]
    >>> [n for n in range(1, 20) if is_due(n, freq=0, first=2)]
    [1, 3, 7, 15]
    """
    if freq == 0:
        return (updates + 1) & updates == 0
    return updates <= first or updates % freq == 0


class UpdateCounter:
    """Receives the updates of a trainer, and decides when the methods of a writer are called.

    Arguments are those of ``ProgressWriter``, which wraps it.
    """

    def __init__(self, writer: ProgressWriter, training_update_freq: int, training_first: int, test_update_freq: int,
                 test_first: int, distributed_freq: int, distributed_first: int) -> None:
        self._writer = writer
        self._training = _Tally(_count(training_update_freq), _count(training_first), 2)
        self._test = _Tally(_count(test_update_freq), _count(test_first), 1)
        self._distributed = _Tally(_count(distributed_freq), _count(distributed_first), 1)
        self._training_summaries = self._test_summaries = 0
        self._training_start = self._test_start = time.perf_counter()

    def total_training_updates(self) -> int:
        """Number of training updates so far."""
        return self._training.total_updates

    def total_test_updates(self) -> int:
        """Number of test updates so far."""
        return self._test.total_updates

    def begin_session(self, seen: int, total: int | None) -> None:
        """Called when a training session starts or resumes.

        Units: samples seen so far, and in total, or None if there is no limit.
        """

    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Count a training minibatch.

        Units: loss and metric are sums over the samples.
        """
        if self._training.add(samples, loss, metric):
            self._writer.on_write_training_update(*self._training.spans())
        self._writer.on_training_update_end()

    def update_test(self, samples: int, metric: SupportsFloat) -> None:
        """Count a test minibatch; the metric is a sum over the samples."""
        if self._test.add(samples, metric):
            self._writer.on_write_test_update(*self._test.spans())

    def update_distributed_sync(self, samples: int, metric: SupportsFloat) -> None:
        """Count a synchronization of the workers; the metric is a sum over the samples."""
        if self._distributed.add(samples, metric):
            self._writer.on_write_distributed_sync_update(*self._distributed.spans())

    def set_training_averages(self, loss: float, metric: float) -> None:
        """Replace loss and metric since the last summary, such as by those of all workers.

        Units: averages over samples.
        """
        self._training.replace(loss, metric)

    def write_training_summary(self) -> None:
        """Write the totals of an epoch, and restart them."""
        self._training_summaries += 1
        elapsed, self._training_start = _milliseconds_since(self._training_start)
        samples, updates, loss, metric = _totals(self._training)
        self._writer.on_write_training_summary(samples, updates, self._training_summaries, loss, metric, elapsed)

    def write_test_summary(self) -> None:
        """Write the totals of a test, and restart them."""
        self._test_summaries += 1
        elapsed, self._test_start = _milliseconds_since(self._test_start)
        samples, updates, metric = _totals(self._test)
        self._writer.on_write_test_summary(samples, updates, self._test_summaries, metric, elapsed)

    def write(self, key: str, value: Any) -> None:
        """Write some other value, such as a new learning rate."""
        self._writer.write(key, value)


@public
@delegates_to(UpdateCounter)
class ProgressWriter(UpdateCounter):
    """Base class of progress writers; a subclass defines the ``on_write`` methods that it needs.

    The trainer calls ``update_training`` and the like after every minibatch. Every ``freq`` updates, and for the first
    few, the totals are passed to an ``on_write`` method. With a frequency of 0, intervals double: totals are written
    after 1, 3, 7, 15, … updates.

    Losses and metrics may be numbers that are still being computed (anything with ``__float__``): they are read only
    when they are written, or 64 updates later.

    Units: losses and metrics are sums over the samples of a minibatch; totals restart after each summary.
    Errors: TypeError if a frequency is no integer, OverflowError if it is negative.

    >>> class Echo(ProgressWriter):
    ...     def on_write_training_update(self, samples, updates, aggregate_loss, aggregate_metric):
    ...         print(samples, updates, aggregate_loss)
    >>> writer = Echo(2, 0, 1, 0)
    >>> for loss in (1., 2., 3., 4.):
    ...     writer.update_training(10, loss, 0)
    (0, 20) (0, 2) (0.0, 3.0)
    (20, 40) (2, 4) (3.0, 10.0)
    """

    def __init__(self, trainingUpdateWriteFrequency: int = sys.maxsize, trainingFirstUpdatesToWrite: int = 0,
                 testUpdateWriteFrequency: int = sys.maxsize, testFirstUpdatesToWrite: int = 0,
                 distributedSyncUpdateWriteFrequency: int = sys.maxsize,
                 distributedSyncFirstUpdatesToWrite: int = 0) -> None:
        self.__wrapped__ = UpdateCounter(
            self, trainingUpdateWriteFrequency, trainingFirstUpdatesToWrite, testUpdateWriteFrequency,
            testFirstUpdatesToWrite, distributedSyncUpdateWriteFrequency, distributedSyncFirstUpdatesToWrite,
        )

    def __disown__(self) -> ProgressWriter:
        """Called by subclasses written for CNTK's C++ base class; has no effect."""
        return self

    def on_write_training_update(self, samples: Counts, updates: Counts, aggregate_loss: Span,
                                 aggregate_metric: Span) -> None:
        """Called with totals since the last summary, each at the previous call and at this one."""

    def on_write_test_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Called with totals since the last summary, each at the previous call and at this one."""

    def on_write_distributed_sync_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Called with totals since the start, each at the previous call and at this one."""

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Called with totals since the previous summary; ``summaries`` counts from 1."""

    def on_write_test_summary(self, samples: int, updates: int, summaries: int, aggregate_metric: Measured,
                              elapsed_milliseconds: int) -> None:
        """Called with totals since the previous summary; ``summaries`` counts from 1."""

    def on_training_update_end(self) -> None:
        """Called after each training update has been counted, and written if it was time."""

    def write(self, key: str, value: Any) -> None:
        """Write some other value, such as a new learning rate."""


def _totals(tally: _Tally) -> tuple[Any, ...]:
    totals = (tally.samples, tally.updates, *map(float, tally.sums))
    tally.reset()
    return totals


def _milliseconds_since(start: float) -> tuple[int, float]:
    now = time.perf_counter()
    return round(1000 * (now - start)), now


def _count(value: int) -> int:
    count = operator.index(value)
    if count < 0:
        raise OverflowError(f"a progress writer's frequencies and counts must be 0 or more, not {count}")
    return count
