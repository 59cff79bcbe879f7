"""Losses and metrics of an epoch or a trial, between the trainer and the progress writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsFloat

from ..graph.proxy import unwrap
from ..logging import ProgressWriter
from ..logging._progress_writer import LazySum
from ..logging.progress_print import ProgressPrinter
from ._observer import Observer


class Tally:
    """Sums over the minibatches of an epoch or a trial."""

    def __init__(self) -> None:
        self.loss, self.metric, self.samples, self.minibatches = LazySum(), LazySum(), 0, 0
        self.others: list[LazySum] = []
        self.last: tuple[SupportsFloat, int] = 0.0, 0  # the loss of the last minibatch, and its samples

    def add(
        self, samples: int, loss: SupportsFloat, metric: SupportsFloat, others: Sequence[SupportsFloat] = ()
    ) -> None:
        """Count a minibatch."""
        self.loss.add(loss)
        self.metric.add(metric)
        self.others = self.others or [LazySum() for _ in others]
        for total, other in zip(self.others, others, strict=True):
            total.add(other)
        self.samples += samples
        self.minibatches += 1
        self.last = loss, samples

    def last_loss(self) -> float:
        """The average loss of the last minibatch; waits for the device."""
        loss, samples = self.last
        return float(loss) / max(samples, 1)


class Meter:
    """A progress writer that counts what the trainer reports, and passes it on to others, except for trials.

    `others_of`: returns the metrics of the last minibatch that progress writers do not get. `observer`: gets all.
    """

    def __init__(self, writers: Sequence[ProgressWriter], observer: Observer) -> None:
        self.others_of: Callable[[], Sequence[SupportsFloat]] = tuple
        self._observer = observer
        self._writers = [unwrap(writer) for writer in writers]
        self._shown: dict[str, Any] = {}
        self._is_silent = False
        self.tally = Tally()

    def begin_epoch(self) -> Tally:
        """A new tally, of what is trained from now on."""
        self.tally = Tally()
        return self.tally

    @contextmanager
    def silence(self) -> Iterator[Tally]:
        """The writers get nothing of what is trained or tested in this scope; the tally counts what is trained."""
        outer, self.tally, self._is_silent = self.tally, Tally(), True
        try:
            yield self.tally
        finally:
            self.tally, self._is_silent = outer, False

    def begin_session(self, seen: int, total: int | None) -> None:
        """Announce the number of samples seen so far, and in total, if that is known."""
        for writer in self._writers:
            writer.begin_session(seen, total)

    def show(self, name: str, value: float) -> None:
        """Report a value, such as the learning rate, if it has changed."""
        if self._shown.get(name) != value:
            self._shown[name] = value
            for writer in self._writers:
                writer.write(name, value)

    # ---- called by the trainer
    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Count a minibatch; loss and metric are sums over its samples."""
        others = self.others_of()
        self.tally.add(samples, loss, metric, others)
        self._observer.trained(samples, (loss, metric, *others))
        for writer in () if self._is_silent else self._writers:
            writer.update_training(samples, loss, metric)

    def update_test(self, samples: int, metric: SupportsFloat) -> None:
        """Pass on a minibatch of a test."""
        for writer in () if self._is_silent else self._writers:
            writer.update_test(samples, metric)

    def update_distributed_sync(self, samples: int, metric: SupportsFloat) -> None:
        """Pass on an exchange between workers."""
        for writer in () if self._is_silent else self._writers:
            writer.update_distributed_sync(samples, metric)

    def write_training_summary(self) -> None:
        """Pass on the end of an epoch."""
        for writer in () if self._is_silent else self._writers:
            writer.write_training_summary()

    def write_test_summary(self) -> None:
        """Pass on the end of a test."""
        for writer in self._writers:
            writer.write_test_summary()

    def write(self, key: str, value: Any) -> None:
        """Rates change in trials, too: `show` reports those of epochs."""


class EpochPrinter(ProgressPrinter):
    """A ProgressPrinter that has the numbers of epochs from a run, which may go on or repeat some.

    `epoch`: returns that of the present one, from 1.
    """

    def __init__(self, epoch: Callable[[], int], **options: Any) -> None:
        super().__init__(**options)
        self._epoch = epoch

    def on_write_training_summary(
        self, samples: int, updates: int, summaries: int, aggregate_loss: float, aggregate_metric: float,
        elapsed_milliseconds: int,
    ) -> None:
        """Print an epoch."""
        super().on_write_training_summary(
            samples, updates, self._epoch(), aggregate_loss, aggregate_metric, elapsed_milliseconds
        )

    def on_write_test_summary(
        self, samples: int, updates: int, summaries: int, aggregate_metric: float, elapsed_milliseconds: int
    ) -> None:
        """Print the test after an epoch."""
        super().on_write_test_summary(samples, updates, self._epoch(), aggregate_metric, elapsed_milliseconds)
