"""A progress bar for interactive use."""
from __future__ import annotations

import sys
import time
from typing import SupportsFloat

from .._terminal import is_interactive, status
from .._typing import Measured
from ..engine.run.compilations import waited
from ..graph.arguments import public
from ._progress_writer import LazySum, ProgressWriter, UpdateCounter

_REFRESH_SECONDS = 0.2
_WIDTH, _LEAST_WIDTH = 20, 4
_LEAST_SECONDS = 0.05  # of compilation that are shown


class _BarCounter(UpdateCounter):
    """Passes every minibatch to a bar."""

    def __init__(self, bar: ProgressBar) -> None:
        super().__init__(bar, sys.maxsize, 0, sys.maxsize, 0, sys.maxsize, 0)
        self._bar = bar

    def begin_session(self, seen: int, total: int | None) -> None:
        """Called when a training session starts or resumes."""
        self._bar.start(seen, total)

    def update_training(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Count a training minibatch."""
        super().update_training(samples, loss, metric)
        self._bar.advance(samples, loss, metric)


@public
class ProgressBar(ProgressWriter):
    """Shows training in one line: recent loss and metric, samples per second, the time left, time spent compiling.

    It is drawn on a terminal or in a notebook, but not in a log file or a batch job. While a program is compiled, it
    says so. A training session sets the total number of samples. CNTK has no such class.

    Args:
        total_samples: total number of samples, unless a training session sets it
        metric_is_pct: whether the metric is a fraction that is shown in percent

    Units: loss and metric are averages over the samples since the bar was last drawn; it is drawn five times a second.
    Speed and time left do not count the first minibatch and waits for the compiler. The last text has the time of
    training, and which part of it were such waits.

    >>> bar = ProgressBar(total_samples=1000)
    >>> bar.update_training(200, 50.0, 20)
    >>> bar.line()
    ' 20% |####                | 200/1000 samples, loss 0.2500, metric 10.00%'
    """

    def __init__(self, total_samples: int | None = None, metric_is_pct: bool = True) -> None:
        super().__init__()
        self.__wrapped__ = _BarCounter(self)
        self.total, self.metric_is_pct = total_samples, metric_is_pct
        self._seen = self._samples_since_line = self._since_start = 0
        self._loss, self._metric = LazySum(), LazySum()
        self._averages: tuple[float, float] | None = None
        self._drawn = 0.0
        self._waited_before = self._waited_at_start = waited()
        self._start: float | None = None

    def start(self, seen: int, total: int | None) -> None:
        """Start or resume training.

        Units: samples seen so far, and in total, or None if there is no limit.
        """
        self._seen, self.total = seen, total if total is not None else self.total
        self._waited_before, self._start = waited(), None
        status.follow(self._line_while)

    def advance(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Count a training minibatch, and redraw the bar if it is time.

        Units: loss and metric are sums over the samples.
        """
        now = time.perf_counter()
        if self._start is None:  # the first minibatch is not timed, as it is compiled
            self._start, self._since_start, self._waited_at_start = now, -samples, waited()
        self._seen += samples
        self._since_start += samples
        self._samples_since_line += samples
        self._loss.add(loss)
        self._metric.add(metric)
        if now - self._drawn >= _REFRESH_SECONDS and is_interactive():
            self._drawn = now
            status.follow(self._line_while)
            status.show(self.line(status.columns()))

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Draw the bar a last time, and start a new line."""
        if is_interactive():
            waits = waited() - self._waited_before
            seconds = self._seconds_of_work() + waits
            compiling = f"{waits / seconds:.0%} compiling" if waits >= _LEAST_SECONDS else ""
            details = [*self._numbers(), self._speed_text(), _clock(seconds), compiling]
            status.finish(self._text(details, status.columns()))

    def line(self, columns: int | None = None) -> str:
        """The text of the bar now; the bar itself becomes shorter if there are few columns."""
        speed = self._speed()
        left = f"{_clock(max(self.total - self._seen, 0) / speed)} left" if speed and self.total is not None else ""
        waits = waited() - self._waited_before
        compiling = f"{waits:.1f} s compiling" if waits >= _LEAST_SECONDS else ""
        return self._text([*self._numbers(), self._speed_text(), left, compiling], columns)

    def _line_while(self, wait: str) -> str:
        """The text while something is waited for; an empty text if nothing is."""
        columns = status.columns()
        return self._text([wait], columns) if wait else self.line(columns)

    def _text(self, details: list[str], columns: int | None) -> str:
        """How far training is, and the details that are not empty."""
        details = [detail for detail in details if detail]
        if self.total is None:
            return ", ".join([f"{self._seen} samples", *details])
        fraction = min(self._seen / max(self.total, 1), 1)
        for unit in " samples", "":
            text = ", ".join([f"{self._seen}/{self.total}{unit}", *details])
            room = _WIDTH if columns is None else columns - len("100% || ") - len(text)
            if room >= _LEAST_WIDTH:
                width = min(room, _WIDTH)
                return f"{fraction:4.0%} |{('#' * int(width * fraction)).ljust(width)}| {text}"
        return f"{fraction:4.0%} {text}"

    def _numbers(self) -> list[str]:
        """Loss and metric since the bar was last drawn."""
        if self._samples_since_line:
            samples = self._samples_since_line
            self._averages = float(self._loss) / samples, float(self._metric) / samples
            self._samples_since_line, self._loss, self._metric = 0, LazySum(), LazySum()
        if self._averages is None:
            return []
        loss, metric = self._averages
        return [f"loss {_short(loss)}", f"metric {metric:.2%}" if self.metric_is_pct else f"metric {_short(metric)}"]

    def _seconds_of_work(self) -> float:
        """Time since the first minibatch, without waits for the compiler."""
        if self._start is None:
            return 0.0
        return max(0.0, time.perf_counter() - self._start - (waited() - self._waited_at_start))

    def _speed(self) -> float:
        """Units: samples per second; 0 as long as it is unknown."""
        seconds = self._seconds_of_work()
        return self._since_start / seconds if seconds else 0.0

    def _speed_text(self) -> str:
        speed = self._speed()
        return f"{speed:.{1 if speed < 100 else 0}f} samples/s" if speed else ""


def _short(number: float) -> str:
    return f"{number:.4f}" if number == 0 or abs(number) >= 0.001 else f"{number:.2e}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
