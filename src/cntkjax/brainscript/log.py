"""The log of CNTK's command line, line by line as people's scripts read it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import SupportsFloat, TextIO

import numpy as np

from ..configuration import Block
from ..logging._progress_writer import LazySum, is_due
from ..parallel import workers
from ..sgd import Epoch, Observer
from ..sgd._workers import summed
from .writing import new_file

_WIDTH = 76


class Log:
    """Lines on the console, or in a file; with `timestamping` each begins with date and time."""

    def __init__(self, stream: TextIO | None = None, timestamping: bool = False) -> None:
        self._stream, self.timestamping, self._is_brief = stream, timestamping, False

    @classmethod
    def to_file(cls, prefix: str, commands: Sequence[str], timestamping: bool) -> Log:
        """``PREFIX_command.log`` with `timestamping`, otherwise ``PREFIX``, as CNTK's logs show; the folder is made.

        Workers append ``rankN`` and ``.rankN``, but for the first ``PREFIX``.
        """
        rank = workers.rank()
        if timestamping:
            path = new_file(f"{prefix}_{'_'.join(commands)}.log" + (f"rank{rank}" if workers.size() > 1 else ""))
        else:
            path = new_file(f"{prefix}.rank{rank}" if rank else prefix)
        print(f"Redirecting stderr to file {path}", file=sys.stderr)
        return cls(path.open("w", encoding="utf-8"), timestamping)

    def follow(self, block: Block) -> None:
        """Leave out details from here, if a block or one around it has ``traceLevel = 0``."""
        self._is_brief = block.integer("traceLevel", 1) == 0

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            self._stream.close()

    def line(self, *texts: str) -> None:
        """Write lines, an empty one if there is none; on the console only worker 0 does."""
        for text in texts or ("",) if self._stream is not None or workers.rank() == 0 else ():
            stamp = f"{datetime.now():%m/%d/%Y %H:%M:%S}: " if self.timestamping and text else ""
            try:
                print(stamp + text, file=self._stream or sys.stderr, flush=True)
            except OSError as error:
                self._go_on_without_file(error)
                self.line(text)

    def detail(self, *texts: str) -> None:
        """Write lines that CNTK leaves out with ``traceLevel = 0``."""
        if not self._is_brief:
            self.line(*texts)

    def parameters(self, elements: int, shapes: Mapping[str, Sequence[int]], with_gradient: int) -> None:
        """What is trained: numbers of elements and of nodes with gradients, and shapes by name."""
        if self._is_brief:
            self.line(f"Training {elements} parameters in {len(shapes)} parameter tensors.", "")
            return
        self.line(f"Training {elements} parameters in {len(shapes)} out of {len(shapes)} parameter tensors and "
                  f"{with_gradient} nodes with gradient:", "")
        for name, shape in shapes.items():
            self.line(f"\tNode '{name}' (LearnableParameter operation) : [{' x '.join(map(str, shape)) or '1'}]")
        self.line()

    def _go_on_without_file(self, error: OSError) -> None:
        """Write the rest on the console: a full disk is no reason to end a training."""
        file, self._stream = self._stream, None
        if file is None:
            raise error
        with suppress(OSError):
            file.close()
        self.warn(f"{file.name} cannot be written, the log goes on here: {error.strerror}")

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.line(f"WARNING: {text}")

    def headline(self, text: str) -> None:
        """A line in a frame, as before each command."""
        frame = ("#" * _WIDTH, " " * _WIDTH, f" {text}".ljust(_WIDTH), " " * _WIDTH, "#" * _WIDTH)
        self.line("", *(f"#{middle}#" for middle in frame), "")


@dataclass(frozen=True)
class Criterion:
    """A node whose average is logged, and its operation.

    `is_whole`: whether it has one value for an epoch so far; it is logged as one sample, the last one.
    """

    name: str
    operation: str
    is_whole: bool = False

    def shown(self, average: float, samples: int) -> str:
        """``name = average * samples``; errs and top5Errs are percentages, as in CNTK."""
        number = f"{average:.8f}" if abs(average) < 1e5 or not math.isfinite(average) else f"{average:.8e}"
        if self.name.lower().endswith("errs"):
            number = f"{100 * average:.3f}%"
        return f"{self.name} = {number} * {samples}"

    def with_perplexity(self, average: float, samples: int) -> str:
        """The same, with the perplexity of a cross entropy."""
        text = self.shown(average, samples)
        if "CrossEntropy" not in self.operation:
            return text
        return f"{text}; perplexity = {math.inf if average > 709 else math.exp(average):.8f}"


class Sums:
    """Sums of criteria over minibatches, and how their averages are logged."""

    def __init__(self, criteria: Sequence[Criterion]) -> None:
        self.criteria, self.minibatches = criteria, 0
        self._samples = [0] * len(criteria)
        self._totals = [LazySum() for _ in criteria]

    def add(self, totals: Sequence[SupportsFloat], samples: Sequence[int]) -> None:
        """Count a minibatch: the sums of the criteria over it, and the samples of each."""
        for i, total in enumerate(totals):
            if self.criteria[i].is_whole:
                self._totals[i], self._samples[i] = LazySum(), 0
            self._totals[i].add(total)
            self._samples[i] += 1 if self.criteria[i].is_whole else samples[i]
        self.minibatches += 1

    def of_all_workers(self) -> Sums:
        """The sums over those of all workers, who have to call it."""
        whole, own = Sums(self.criteria), [float(total) for total in self._totals]
        values = summed("the averages of an epoch", [*own, *self._samples])
        columns = zip(self.criteria, own, values, strict=False)
        totals = [mine if each.is_whole else total for each, mine, total in columns]
        whole.add(totals, [int(value) for value in values[len(own):]])
        return whole

    @property
    def samples(self) -> int:
        """The samples of the first criterion."""
        return self._samples[0]

    def averages(self) -> list[float]:
        """The average of each criterion."""
        return [float(total) / max(samples, 1) for total, samples in zip(self._totals, self._samples, strict=True)]

    def shown(self, perplexity: bool = False) -> str:
        """All criteria, after each other."""
        show = Criterion.with_perplexity if perplexity else Criterion.shown
        return "; ".join(map(show, self.criteria, self.averages(), self._samples))


class TrainingLog(Observer):
    """The lines of a training.

    `criteria`: the loss, and the metrics. `epochs`, `epoch_size`: how many there are, and their size in samples (0: a
    sweep). `every`, `first`: minibatches between lines (0: none), and how many have lines of their own. `pieces`: those
    of a minibatch of truncated sequences, whose size CNTK's log counts once. `methods`: see parallel_lines.py.
    """

    def __init__(
        self, log: Log, criteria: Sequence[Criterion], epochs: int, epoch_size: int, every: int, first: int,
        pieces: int = 1, methods: Callable[[int], tuple[str, str]] = lambda epoch: ("", ""),
    ) -> None:
        self._log, self._criteria, self._epochs = log, criteria, epochs
        self._epoch_size, self._every, self._first = epoch_size, every or sys.maxsize, first
        self._samples_seen, self._known_size, self._pieces = 0, epoch_size, max(pieces, 1)
        self._rate = 0.0
        self._methods = methods
        self._last: Sequence[SupportsFloat] = ()

    def resumes(self, samples: int) -> None:
        """Count what was seen before."""
        self._samples_seen = samples

    def begins(self, epoch: Epoch, momentum: float) -> None:
        """Log the rate and the momentum."""
        constant = -1 / math.log(momentum) if momentum else 0.0
        self._log.detail(
            "", f"Starting Epoch {epoch.number}: learning rate per sample = {epoch.rate:f}  effective momentum = "
            f"{momentum**epoch.minibatch_size:f}  momentum as time constant = {constant:.1f} samples"
        )
        self._rate, self._began = epoch.rate, time.perf_counter()
        self._begin_loop(epoch.number, epoch.minibatch_size)

    def _begin_loop(self, epoch: int, size: int, title: str = "") -> None:
        before, loop = self._methods(epoch)
        if before:
            self._log.detail(before)
        self._log.detail("", f"Starting minibatch loop{loop}.")
        self._number, self._size, self._title, self._shown = epoch, size, title, time.perf_counter()
        self._whole, self._since = Sums(self._criteria), Sums(self._criteria)

    def trained(self, samples: int, sums: Sequence[SupportsFloat]) -> None:
        """Count a minibatch; log the averages of those since the last line, if it is time."""
        self._last = sums[: len(self._criteria)]  # a trainer has a metric, if only 0
        for each in (self._whole, self._since):
            each.add(self._last, [samples] * len(sums))
        if is_due(self._whole.minibatches, self._every, self._first):
            self._show()

    def _show(self) -> None:
        """The line about the minibatches since the last one."""
        shown, count, last = self._since.shown(), self._since.samples, self._whole.minibatches
        span = f"{last - self._since.minibatches + 1:4d}-{last:4d}{self._percentage(last)}"
        seconds, self._shown = time.perf_counter() - self._shown, time.perf_counter()
        self._log.detail(
            f"{self._title} {self._name()}-Minibatch[{span}]: {shown}; time = {seconds:.4f}s; samplesPerSecond = "
            f"{count / max(seconds, 1e-9):.1f}"
        )
        self._check(self._since)
        self._since = Sums(self._criteria)

    def _check(self, sums: Sums) -> None:
        """Refuse to go on after a loss that is no number, as CNTK does, but in trials."""
        if not self._title and math.isnan(sums.averages()[0]):
            raise RuntimeError("The training criterion is not a number (NAN): give a smaller learning rate, or see "
                               "what the data have in these minibatches")

    def tries(self, epoch: int, title: str, rate: float, size: int) -> None:
        """Begin the minibatches of a trial."""
        self._begin_loop(epoch, size, f"  {title}:")

    def tried(self, epoch: int, rate: float, size: int) -> None:
        """Log the averages of a trial."""
        self._log.line(f" Finished Mini-Epoch[{epoch}]: {self._of_all().shown()}; learningRatePerSample = "
                       f"{rate:.8g}; minibatchSize = {size}")

    def searches(self, finding: str) -> None:
        """Log what a search does."""
        self._log.line(f" {finding}")

    def ended(self, epoch: Epoch) -> None:
        """Log the averages of the epoch; workers find its end with another minibatch (log)."""
        self._samples_seen += epoch.samples
        if any(self._methods(epoch.number)):
            columns = zip(self._criteria, self._last, strict=True)
            self.trained(0, [value if each.is_whole else 0.0 for each, value in columns])
        shown = self._whole.minibatches - self._since.minibatches
        self._known_size = self._known_size or shown * (epoch.minibatch_size // self._pieces)
        self._log.line(
            f"Finished {self._name()}: [Training] {self._of_all().shown()}; totalSamplesSeen = {self._samples_seen}; "
            f"learningRatePerSample = {epoch.rate:.8g}; epochTime={time.perf_counter() - self._began:.6g}s"
        )
        self._check(self._whole)

    def validated(self, sums: Sums) -> None:
        """Log the averages of the validation data."""
        self._log.line(f"Final Results: Minibatch[1-{sums.minibatches}]: {sums.shown(perplexity=True)}",
                       f"Finished {self._name()}: [Validate] {sums.shown()}")

    def chooses(self, best: Mapping[str, Epoch]) -> None:
        """Log which epochs are the best so far."""
        shown = [f"{name} = {epoch.cv_criteria[name]:.6f} (Epoch {epoch.number})" for name, epoch in best.items()]
        self._log.line(f"Best epoch per criterion so far: [Validate] {'; '.join(shown)}")

    def copies(self, criterion: str, epoch: int, path: str, copy: str) -> None:
        """Log the copy of the best model."""
        self._log.line(f"Best epoch for criterion '{criterion}' is {epoch} and model {path} copied to {copy}")

    def saves(self, path: str) -> None:
        """Log the checkpoint."""
        self._log.detail(f"SGD: Saving checkpoint model '{path}'")

    def returns(self, path: str, epoch: int, rate: float, samples: int) -> None:
        """Log that the epochs since a checkpoint are repeated."""
        self._samples_seen -= samples
        self._log.line(f"Loading (rolling back to) previous model with best training-criterion value: {path}.")
        if rate < self._rate:
            self._log.line(f"learnRatePerSample reduced to {rate:.8g}")
        self._log.line(f"SGD: revoke back to and update checkpoint file for epoch {epoch}")

    def stops(self, epoch: int, rate: float, least: float) -> None:
        """Log that the rate is too small for an epoch."""
        self._log.line(
            f"Learn Rate Per Sample for Epoch[{epoch}] = {rate:.8g} is less than minLearningRatePerSample "
            f"{np.float32(least):.8g}. Training complete."
        )

    def _of_all(self) -> Sums:
        """The sums since the loop began; over all workers if these train on their own."""
        return self._whole.of_all_workers() if self._methods(self._number)[0] else self._whole

    def _name(self) -> str:
        return f"Epoch[{self._number:2d} of {self._epochs}]"

    def _percentage(self, minibatch: int) -> str:
        """How much of the epoch is over by the size of full minibatches, if the size of epochs is known.

        Without epochSize it is what lines of the first epoch have counted, as CNTK's logs show.
        """
        seen, size = minibatch * (self._size // self._pieces), self._known_size
        return f", {100 * seen / size:.2f}%" if size else ""


__all__ = ["Criterion", "Log", "Sums", "TrainingLog"]
