"""A progress bar, for whoever is watching."""
from __future__ import annotations

import shutil
import sys
import time
from typing import SupportsFloat

from ._progress_writer import Counting, LazySum, ProgressWriter

_SECONDS_BETWEEN_DRAWINGS = 0.2
_WIDTH = 20


class _Watching(Counting):
    """Shows every minibatch to a bar."""

    def __init__(self, bar: ProgressBar) -> None:
        super().__init__(bar, sys.maxsize, 0, sys.maxsize, 0, sys.maxsize, 0)
        self._bar = bar

    def begin_session(self, seen: int, total: int | None) -> None:
        self._bar.begin(seen, total)

    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        super().update_training(samples, loss, metric)
        self._bar.go_on(samples, loss, metric)


class ProgressBar(ProgressWriter):
    """Shows in one line how far training has come: loss and metric of late, samples per second, and the time left.

    It is drawn on a terminal or in a notebook; where nobody is watching (a log file, a batch job) there is nothing. A
    training session tells it how many samples there will be. CNTK has nothing like it.

    Args:
        total_samples: how many samples there will be, if no training session says it.
        metric_is_pct: the metric is a fraction, shown in percent.

    Units: loss and metric are averages over the samples since the bar was last drawn, five times a second.

    Example:
        >>> bar = ProgressBar(total_samples=1000)
        >>> bar.update_training(200, 50.0, 20)
        >>> bar.line()
        ' 20% |####                | 200/1000 samples, loss 0.250000, metric 10.00%'
    """

    def __init__(self, total_samples: int | None = None, metric_is_pct: bool = True) -> None:
        super().__init__()
        self.__wrapped__ = _Watching(self)
        self.total, self.metric_is_pct = total_samples, metric_is_pct
        self._seen = self._fresh = self._since_start = 0
        self._loss, self._metric = LazySum(), LazySum()
        self._averages: tuple[float, float] | None = None
        self._start: float | None = None
        self._drawn = 0.0

    def begin(self, seen: int, total: int | None) -> None:
        """A training session begins or goes on: samples seen so far, and in all, if there is a limit."""
        self._seen, self.total = seen, total if total is not None else self.total
        self._start = None

    def go_on(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """One training minibatch is done."""
        now = time.perf_counter()
        if self._start is None:  # the first minibatch is not timed: it is the one that has to be compiled
            self._start, self._since_start = now, -samples
        self._seen += samples
        self._since_start += samples
        self._fresh += samples
        self._loss.add(loss)
        self._metric.add(metric)
        if now - self._drawn >= _SECONDS_BETWEEN_DRAWINGS and is_watched():
            self._drawn = now
            _Screen.show(self.line())

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: float,
                                  aggregate_metric: float, elapsed_milliseconds: int) -> None:
        if is_watched():
            _Screen.leave(self.line())

    def line(self) -> str:
        """What is drawn now."""
        if self._fresh:
            self._averages = float(self._loss) / self._fresh, float(self._metric) / self._fresh
            self._fresh, self._loss, self._metric = 0, LazySum(), LazySum()
        elapsed = 0.0 if self._start is None else time.perf_counter() - self._start
        speed = self._since_start / elapsed if self._since_start and elapsed else None
        parts = [f"{self._seen} samples"]
        if self.total is not None:
            share = min(self._seen / max(self.total, 1), 1)
            bar = ("#" * int(_WIDTH * share)).ljust(_WIDTH)
            parts = [f"{share:4.0%} |{bar}| {self._seen}/{self.total} samples"]
        if self._averages is not None:
            loss, metric = self._averages
            parts.append(f"loss {loss:.6f}")
            parts.append(f"metric {100 * metric:.2f}%" if self.metric_is_pct else f"metric {metric:.6f}")
        if speed is not None:
            parts.append(f"{speed:.1f} samples/s")
            if self.total is not None:
                parts.append(f"{_clock(max(self.total - self._seen, 0) / speed)} left")
        return ", ".join(parts)


class _Screen:
    """The one line of the terminal that bars are drawn on."""

    drawn = 0  # characters of it that stand there

    @classmethod
    def show(cls, line: str) -> None:
        line = line[: shutil.get_terminal_size().columns - 1]
        cls._write("\r" + line.ljust(cls.drawn))
        cls.drawn = len(line)

    @classmethod
    def leave(cls, line: str) -> None:
        """Write a last line, and begin a new one."""
        cls.show(line)
        cls._write("\n")
        cls.drawn = 0

    @classmethod
    def clear(cls) -> None:
        if cls.drawn:
            cls._write("\r" + " " * cls.drawn + "\r")
            cls.drawn = 0

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def make_room() -> None:
    """Take a bar off the screen before something else is printed; it comes back when it is next drawn."""
    _Screen.clear()


def is_watched() -> bool:
    """Whether a person sees what is printed: on a terminal, or in a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"

