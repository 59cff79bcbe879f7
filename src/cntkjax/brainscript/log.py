"""The log of CNTK's command line, line by line as people's scripts read it."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..logging import ProgressWriter
from ..parallel import workers
from ..sgd import Epoch, Observer

_WIDTH = 78


class Log:
    """Lines on the console, or in a file; with `timestamping` each begins with date and time."""

    def __init__(self, stream: TextIO | None = None, timestamping: bool = False) -> None:
        self._stream, self.timestamping = stream, timestamping

    @classmethod
    def to_file(cls, prefix: str, commands: Sequence[str], timestamping: bool) -> Log:
        """``PREFIX_command.log``, with ``rankN`` if there are several workers; the folder is made."""
        rank = f"rank{workers.rank()}" if workers.size() > 1 else ""
        path = Path(f"{prefix}_{'_'.join(commands)}.log{rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"Redirecting stderr to file {path}", file=sys.stderr)
        return cls(path.open("w", encoding="utf-8"), timestamping)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            self._stream.close()

    def line(self, text: str = "") -> None:
        """Write a line; on the console only worker 0 does."""
        if self._stream is None and workers.rank():
            return
        stamp = f"{datetime.now():%m/%d/%Y %H:%M:%S}: " if self.timestamping and text else ""
        print(stamp + text, file=self._stream or sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.line(f"WARNING: {text}")

    def headline(self, text: str) -> None:
        """A line in a frame, as before each command."""
        self.line()
        for middle in ("#" * _WIDTH, " " * _WIDTH, f" {text}".ljust(_WIDTH), " " * _WIDTH, "#" * _WIDTH):
            self.line(f"#{middle}#")
        self.line()

    def arguments(self, arguments: Sequence[str]) -> None:
        """The command line, and the folder."""
        self.line(f"cntk {' '.join(arguments)}")
        self.line(f"in {os.getcwd()}")


@dataclass(frozen=True)
class Criterion:
    """A node whose average is logged, and its operation."""

    name: str
    operation: str

    def shown(self, total: float, samples: int) -> str:
        """``name = average * samples``; errs are percentages, as in CNTK."""
        average = total / samples if samples else 0.0
        if self.name == "errs":
            return f"{self.name} = {100 * average:.3f}% * {samples}"
        number = f"{average:.8f}" if abs(average) < 1e5 or not math.isfinite(average) else f"{average:.8e}"
        return f"{self.name} = {number} * {samples}"

    def with_perplexity(self, total: float, samples: int) -> str:
        """The same, with the perplexity of a cross entropy."""
        text = self.shown(total, samples)
        if "CrossEntropy" not in self.operation:
            return text
        average = total / samples if samples else 0.0
        return f"{text}; perplexity = {math.exp(average) if average < 709 else math.inf:.8f}"


def listed(criteria: Sequence[Criterion], totals: Sequence[float], samples: int) -> str:
    """All criteria, after each other."""
    return "; ".join(each.shown(total, samples) for each, total in zip(criteria, totals, strict=True))


class TrainingLog(Observer, ProgressWriter):
    """The lines of a training.

    `criteria`: the loss, and the metric if there is one. `epochs`, `epoch_size`: how many there are, and their size in
    samples (0: a sweep). `every`, `first`: minibatches between lines, and how many have lines of their own.
    """

    def __init__(
        self, log: Log, criteria: Sequence[Criterion], epochs: int, epoch_size: int, every: int, first: int
    ) -> None:
        ProgressWriter.__init__(self, every or sys.maxsize, first)
        self._log, self._criteria, self._epochs = log, criteria, epochs
        self._epoch_size, self._every = epoch_size, every
        self._samples_seen = self._minibatches = 0
        self._epoch: Epoch | None = None

    # ---- called by the run
    def begins(self, epoch: Epoch, momentum: float) -> None:
        """Log the rate and the momentum."""
        if not self._samples_seen and self._epoch_size:
            self._samples_seen = self._epoch_size * (epoch.number - 1)
        constant = -1 / math.log(momentum) if momentum else 0.0
        self._log.line(
            f"Starting Epoch {epoch.number}: learning rate per sample = {epoch.rate:f}  effective momentum = "
            f"{momentum**epoch.minibatch_size:f}  momentum as time constant = {constant:.1f} samples"
        )
        self._log.line()
        self._log.line("Starting minibatch loop.")
        self._epoch, self._began = epoch, time.perf_counter()
        self._last = self._began

    def ended(self, epoch: Epoch) -> None:
        """Log the averages of the epoch."""
        self._samples_seen += epoch.samples
        self._minibatches = epoch.minibatches
        averages = [epoch.loss, *([] if epoch.metric is None else [epoch.metric])]
        totals = [average * epoch.samples for average in averages]
        self._log.line(
            f"Finished {self._name()}: [Training] {listed(self._criteria, totals, epoch.samples)}; totalSamplesSeen = "
            f"{self._samples_seen}; learningRatePerSample = {np.float32(epoch.rate):.8g}; epochTime="
            f"{time.perf_counter() - self._began:.6g}s"
        )
        if epoch.cv_loss is not None:
            validated = [epoch.cv_loss, *([] if epoch.cv_metric is None else [epoch.cv_metric])]
            samples = self._validated
            totals = [average * samples for average in validated]
            self._log.line(f"Finished {self._name()}: [Validate] {listed(self._criteria, totals, samples)}")

    def saves(self, path: str) -> None:
        """Log the checkpoint."""
        self._log.line(f"SGD: Saving checkpoint model '{path}'")
        self._log.line()

    def loads(self, path: str) -> None:
        """Log that training goes on with another model."""
        self._log.line(f"Loading (rolling back to) previous model with best training-criterion value: {path}.")

    # ---- called by the trainer
    def on_write_training_update(self, samples: Any, updates: Any, aggregate_loss: Any, aggregate_metric: Any) -> None:
        """Log the averages of the minibatches since the last line."""
        count, now = samples[1] - samples[0], time.perf_counter()
        seconds, self._last = now - self._last, now
        totals = [after - before for before, after in (aggregate_loss, aggregate_metric)][: len(self._criteria)]
        self._log.line(
            f" {self._name()}-Minibatch[{updates[0] + 1:4d}-{updates[1]:4d}{self._percentage(updates[1])}]: "
            f"{listed(self._criteria, totals, count)}; time = {seconds:.4f}s; samplesPerSecond = "
            f"{count / max(seconds, 1e-9):.1f}"
        )

    def on_write_test_summary(
        self, samples: int, updates: int, summaries: int, aggregate_metric: Any, elapsed_milliseconds: int
    ) -> None:
        """Remember the number of samples of the validation data."""
        self._validated = samples

    def _name(self) -> str:
        assert self._epoch is not None
        return f"Epoch[{self._epoch.number:2d} of {self._epochs}]"

    def _percentage(self, minibatch: int) -> str:
        """How much of the epoch is over, if its number of minibatches is known."""
        assert self._epoch is not None
        total = math.ceil(self._epoch_size / self._epoch.minibatch_size)
        total = total or self._minibatches // self._every * self._every
        return f", {min(100 * minibatch / total, 100):2.2f}%" if total else ""


__all__ = ["Criterion", "Log", "TrainingLog", "listed"]
