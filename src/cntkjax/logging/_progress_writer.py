"""What every writer of progress does: count, add up, and decide when to write."""
from __future__ import annotations

import operator
import sys
import time
from collections import deque
from typing import Any, SupportsFloat, TypeAlias

from ..graph.proxy import delegates_to

Span: TypeAlias = tuple[float, float]  # a total at the previous line and at this one
Counts: TypeAlias = tuple[int, int]    # the same of a count

_PENDING = 64  # steps that a loss may wait unread; older ones are done on any device


class LazySum:
    """A sum of numbers that may still be in computation: it reads them late, so that nobody waits for the device.

    Example:
        >>> total = LazySum()
        >>> total.add(2.5, times=2)
        >>> float(total)
        5.0
    """

    def __init__(self) -> None:
        self._sum = 0.0
        self._pending: deque[tuple[SupportsFloat, float]] = deque()

    def add(self, value: SupportsFloat, times: float = 1) -> None:
        """Add ``value`` so many times."""
        self._pending.append((value, times))
        while len(self._pending) > _PENDING:
            self._take()

    def _take(self) -> None:
        value, times = self._pending.popleft()
        self._sum += float(value) * times

    def __float__(self) -> float:
        while self._pending:
            self._take()
        return self._sum


class _Tally:
    """Totals of one kind of update, and when they are due: see ``ProgressWriter``."""

    def __init__(self, freq: int, first: int, sums: int) -> None:
        self.freq, self.first = freq, first
        self.ever = 0  # updates since the beginning, which a summary does not reset
        self._width = sums
        self.reset()

    def reset(self) -> None:
        self.samples = self.updates = 0
        self.sums = [LazySum() for _ in range(self._width)]
        self._written: tuple[int, int, list[float]] = (0, 0, [0.0] * self._width)

    def add(self, samples: int, *values: SupportsFloat) -> bool:
        """Count one update; whether a line is due."""
        self.ever += 1
        self.updates += 1
        self.samples += samples
        for total, value in zip(self.sums, values, strict=True):
            total.add(value)
        return due(self.updates, self.freq, self.first)

    def spans(self) -> tuple[Any, ...]:
        """Samples, updates and sums, each as (at the previous line, now)."""
        now = (self.samples, self.updates, [float(total) for total in self.sums])
        (samples, updates, sums), self._written = self._written, now
        return (samples, now[0]), (updates, now[1]), *zip(sums, now[2], strict=True)


def due(updates: int, freq: int, first: int) -> bool:
    """Whether the line after this many updates is written.

    Example:
        >>> [n for n in range(1, 20) if due(n, freq=5, first=2)], [n for n in range(1, 20) if due(n, freq=0, first=2)]
        ([1, 2, 5, 10, 15], [1, 3, 7, 15])
    """
    if freq == 0:
        return (updates + 1) & updates == 0
    return updates <= first or updates % freq == 0


class Counting:
    """What stands behind a writer, and what a trainer tells it: it counts, and decides when the writer's methods are
    called. Arguments are those of ``ProgressWriter``."""

    def __init__(self, writer: ProgressWriter, training_update_freq: int, training_first: int, test_update_freq: int,
                 test_first: int, distributed_freq: int, distributed_first: int) -> None:
        self._writer = writer
        self._training = _Tally(_count(training_update_freq), _count(training_first), 2)
        self._test = _Tally(_count(test_update_freq), _count(test_first), 1)
        self._distributed = _Tally(_count(distributed_freq), _count(distributed_first), 1)
        self._training_summaries = self._test_summaries = 0
        self._training_start = self._test_start = time.perf_counter()

    def total_training_updates(self) -> int:
        """Training updates since the beginning."""
        return self._training.ever

    def total_test_updates(self) -> int:
        """Test updates since the beginning."""
        return self._test.ever

    def begin_session(self, seen: int, total: int | None) -> None:
        """A training session begins or goes on: samples seen so far, and in all, if there is a limit."""

    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """One training minibatch is done."""
        if self._training.add(samples, loss, metric):
            self._writer.on_write_training_update(*self._training.spans())
        self._writer.on_training_update_end()

    def update_test(self, samples: int, metric: SupportsFloat) -> None:
        """One test minibatch is done."""
        if self._test.add(samples, metric):
            self._writer.on_write_test_update(*self._test.spans())

    def update_distributed_sync(self, samples: int, metric: SupportsFloat) -> None:
        """Workers have exchanged their models."""
        if self._distributed.add(samples, metric):
            self._writer.on_write_distributed_sync_update(*self._distributed.spans())

    def write_training_summary(self) -> None:
        """An epoch ends: write its totals, and count anew."""
        self._training_summaries += 1
        elapsed, self._training_start = _milliseconds_since(self._training_start)
        samples, updates, loss, metric = _totals(self._training)
        self._writer.on_write_training_summary(samples, updates, self._training_summaries, loss, metric, elapsed)

    def write_test_summary(self) -> None:
        """A test ends: write its totals, and count anew."""
        self._test_summaries += 1
        elapsed, self._test_start = _milliseconds_since(self._test_start)
        samples, updates, metric = _totals(self._test)
        self._writer.on_write_test_summary(samples, updates, self._test_summaries, metric, elapsed)

    def write(self, key: str, value: Any) -> None:
        """Something else worth noting, such as a new learning rate."""
        self._writer.write(key, value)


@delegates_to(Counting)
class ProgressWriter(Counting):
    """Base of everything that shows or records progress; a subclass defines the ``on_write`` methods it cares for.

    The trainer calls ``update_training`` and the like after every minibatch. Every ``freq`` updates, and for the first
    few, the totals go to an ``on_write`` method. A frequency of 0 means ever rarer: after 1, 3, 7, 15, … updates.

    Losses and metrics may be numbers still in computation (anything with ``__float__``): they are read only when they
    are written, or 64 updates later.

    Units: losses and metrics are sums over the samples of a minibatch. Counts start anew after each summary.

    Example:
        >>> class Echo(ProgressWriter):
        ...     def on_write_training_update(self, samples, updates, aggregate_loss, aggregate_metric):
        ...         print(samples, updates, aggregate_loss)
        >>> writer = Echo(2, 0, 1, 0)
        >>> for loss in (1., 2., 3., 4.):
        ...     writer.update_training(10, loss, 0)
        (0, 20) (0, 2) (0.0, 3.0)
        (20, 40) (2, 4) (3.0, 10.0)
    """

    def __init__(self, training_update_freq: int = sys.maxsize, training_first: int = 0,
                 test_update_freq: int = sys.maxsize, test_first: int = 0,
                 distributed_freq: int = sys.maxsize, distributed_first: int = 0) -> None:
        self.__wrapped__ = Counting(self, training_update_freq, training_first, test_update_freq, test_first,
                                   distributed_freq, distributed_first)

    def __disown__(self) -> ProgressWriter:
        """What subclasses written for CNTK's C++ base class call; there is nothing to give up here."""
        return self

    def on_write_training_update(self, samples: Counts, updates: Counts, aggregate_loss: Span,
                                 aggregate_metric: Span) -> None:
        """Totals since the last summary, each at the previous and at this call."""

    def on_write_test_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Totals since the last summary, each at the previous and at this call."""

    def on_write_distributed_sync_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Totals since the beginning, each at the previous and at this call."""

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: float,
                                  aggregate_metric: float, elapsed_milliseconds: int) -> None:
        """Totals since the previous summary; ``summaries`` counts from 1."""

    def on_write_test_summary(self, samples: int, updates: int, summaries: int, aggregate_metric: float,
                              elapsed_milliseconds: int) -> None:
        """Totals since the previous summary; ``summaries`` counts from 1."""

    def on_training_update_end(self) -> None:
        """A training update has been counted, and written if it was due."""

    def write(self, key: str, value: Any) -> None:
        """Something else worth noting, such as a new learning rate."""


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
        raise OverflowError(f"a progress writer's frequencies and counts are not negative; this one is {count}")
    return count
