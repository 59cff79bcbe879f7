"""A progress bar for interactive use."""
from __future__ import annotations

import shutil
import sys
import time
from typing import SupportsFloat

from .._terminal import is_interactive
from .._typing import Measured
from ._progress_writer import LazySum, ProgressWriter, UpdateCounter

_REFRESH_SECONDS = 0.2
_WIDTH = 20


class _BarCounter(UpdateCounter):
    """Passes every minibatch to a bar."""

    def __init__(self, bar: ProgressBar) -> None:
        super().__init__(bar, sys.maxsize, 0, sys.maxsize, 0, sys.maxsize, 0)
        self._bar = bar

    def begin_session(self, seen: int, total: int | None) -> None:
        """Called when a training session starts or resumes."""
        self._bar.start(seen, total)

    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Counts a training minibatch."""
        super().update_training(samples, loss, metric)
        self._bar.advance(samples, loss, metric)


class ProgressBar(ProgressWriter):
    """Shows the progress of training in one line: recent loss and metric, samples per second, and the time left.

    It is drawn on a terminal or in a notebook, but not in a log file or a batch job. A training session sets the total
    number of samples. CNTK has no such class.

    Args:
        total_samples: total number of samples, unless a training session sets it
        metric_is_pct: whether the metric is a fraction that is shown in percent

    Units: loss and metric are averages over the samples since the bar was last drawn; it is drawn five times a second.

    Example:
        >>> bar = ProgressBar(total_samples=1000)
        >>> bar.update_training(200, 50.0, 20)
        >>> bar.line()
        ' 20% |####                | 200/1000 samples, loss 0.250000, metric 10.00%'
    """

    def __init__(self, total_samples: int | None = None, metric_is_pct: bool = True) -> None:
        super().__init__()
        self.__wrapped__ = _BarCounter(self)
        self.total, self.metric_is_pct = total_samples, metric_is_pct
        self._seen = self._samples_since_line = self._since_start = 0
        self._loss, self._metric = LazySum(), LazySum()
        self._averages: tuple[float, float] | None = None
        self._start: float | None = None
        self._drawn = 0.0

    def start(self, seen: int, total: int | None) -> None:
        """Starts or resumes training.

        Units: samples seen so far, and in total, or None if there is no limit.
        """
        self._seen, self.total = seen, total if total is not None else self.total
        self._start = None

    def advance(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Counts a training minibatch, and redraws the bar if it is time.

        Units: loss and metric are sums over the samples.
        """
        now = time.perf_counter()
        if self._start is None:  # the first minibatch is not timed, as it is compiled
            self._start, self._since_start = now, -samples
        self._seen += samples
        self._since_start += samples
        self._samples_since_line += samples
        self._loss.add(loss)
        self._metric.add(metric)
        if now - self._drawn >= _REFRESH_SECONDS and is_interactive():
            self._drawn = now
            _StatusLine.show(self.line())

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Draws the bar a last time, and starts a new line."""
        if is_interactive():
            _StatusLine.finish(self.line())

    def line(self) -> str:
        """The text of the bar now."""
        if self._samples_since_line:
            samples = self._samples_since_line
            self._averages = float(self._loss) / samples, float(self._metric) / samples
            self._samples_since_line, self._loss, self._metric = 0, LazySum(), LazySum()
        elapsed = 0.0 if self._start is None else time.perf_counter() - self._start
        speed = self._since_start / elapsed if self._since_start and elapsed else None
        parts = [f"{self._seen} samples"]
        if self.total is not None:
            fraction = min(self._seen / max(self.total, 1), 1)
            bar = ("#" * int(_WIDTH * fraction)).ljust(_WIDTH)
            parts = [f"{fraction:4.0%} |{bar}| {self._seen}/{self.total} samples"]
        if self._averages is not None:
            loss, metric = self._averages
            parts.append(f"loss {loss:.6f}")
            parts.append(f"metric {100 * metric:.2f}%" if self.metric_is_pct else f"metric {metric:.6f}")
        if speed is not None:
            parts.append(f"{speed:.1f} samples/s")
            if self.total is not None:
                parts.append(f"{_clock(max(self.total - self._seen, 0) / speed)} left")
        return ", ".join(parts)


class _StatusLine:
    """The last line of the terminal, on which bars are drawn."""

    drawn = 0  # number of characters on it

    @classmethod
    def show(cls, line: str) -> None:
        """Replaces the text, cut to the width of the terminal."""
        line = line[: shutil.get_terminal_size().columns - 1]
        cls._write("\r" + line.ljust(cls.drawn))
        cls.drawn = len(line)

    @classmethod
    def finish(cls, line: str) -> None:
        """Writes a last text, and starts a new line."""
        cls.show(line)
        cls._write("\n")
        cls.drawn = 0

    @classmethod
    def clear(cls) -> None:
        """Erases the text."""
        if cls.drawn:
            cls._write("\r" + " " * cls.drawn + "\r")
            cls.drawn = 0

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def show_status(line: str) -> None:
    """Shows what a long operation does, on a terminal or in a notebook; ``clear_progress_bar`` erases it."""
    if is_interactive():
        _StatusLine.show(line)


def clear_progress_bar() -> None:
    """Erases a bar before something else is printed; it reappears when it is drawn next."""
    _StatusLine.clear()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
