"""Reports progress on the screen or in a log file, in CNTK's format, and to a callback."""
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any, SupportsFloat, TypeVar

from .._terminal import status
from .._typing import Measured
from .._user_code import warn
from ..graph.arguments import public
from ._progress_bar import ProgressBar
from ._progress_writer import Counts, LazySum, ProgressWriter, Span, is_due
from ._tensorboard import TensorBoardProgressWriter

__all__ = ["ProgressBar", "ProgressPrinter", "ProgressWriter", "TensorBoardProgressWriter",
           "TrainingSummaryProgressCallback", "log_number_of_parameters"]

_Number = TypeVar("_Number", int, float)

_HEARTBEAT_SECONDS = 10
_DEFAULT_EPOCHS = 300  # written to the log for a cluster's progress display, as in CNTK


def _avg(numerator: Any, denominator: float) -> Any:
    """The quotient; 0 if the denominator is not positive."""
    return numerator / denominator if denominator > 0 else 0.0


def _warn_deprecated(message: str) -> None:
    """Warn the caller of something deprecated."""
    warn(f"DEPRECATED: {message}", DeprecationWarning)


class _RunningTotals:
    """Loss and metric of manual updates since some point in time."""

    def __init__(self) -> None:
        self.loss, self.metric, self.samples = LazySum(), LazySum(), 0

    def add(self, loss: SupportsFloat, metric: SupportsFloat | None, samples: int) -> None:
        """Add a minibatch; loss and metric are averages over its samples."""
        self.loss.add(loss, samples)
        if metric is not None:
            self.metric.add(metric, samples)
        self.samples += samples

    def averages(self) -> tuple[float, float, int]:
        """Average loss, average metric, and number of samples."""
        return _average(self.loss, self.samples), _average(self.metric, self.samples), self.samples


def _total_property(totals: str, field: str, doc: str) -> property:
    def total(printer: ProgressPrinter) -> float:
        value = getattr(getattr(printer, totals), field)
        return value if isinstance(value, int) else float(value)

    def assign(printer: ProgressPrinter, value: float) -> None:
        setattr(getattr(printer, totals), field, value if field == "samples" else LazySum(value))

    return property(total, assign, doc=f"{doc} Units: a sum over samples.")


@public
class ProgressPrinter(ProgressWriter):
    """Prints the average loss and metric every ``freq`` minibatches, and at the end of each epoch and test.

    Give it to a ``Trainer``, or call ``update`` and ``epoch_summary`` by hand.

    Args:
        freq: minibatches between lines; 0: a table at doubling intervals (after 1, 3, 7, 15, …); None: epochs only
        first: for how many minibatches at the start every line is printed
        tag: shown in brackets in the lines of epochs
        log_to_file: name of a file to which lines are written instead of the screen; ``rank<rank>`` is appended
        rank: rank of this worker
        gen_heartbeat: whether to print ``PROGRESS: 12.50%`` every ten seconds, for clusters that monitor it
        num_epochs: total number of epochs, if known
        test_freq, test_first: the same as ``freq`` and ``first`` for tests
        metric_is_pct: whether the metric is a fraction that is shown in percent
        distributed_freq, distributed_first: the same as ``freq`` and ``first`` for synchronizations of workers

    Units: lines show averages per sample, and the number of samples.
    Errors: TypeError if a frequency is no integer, OverflowError if it is negative.
    Source: lines recorded from CNTK 2.7, except its banner of build information. Unlike CNTK, the first lines of manual
    updates number their minibatches correctly, and the heartbeat shows progress instead of zero.

    >>> printer = ProgressPrinter(freq=2, num_epochs=3)
    >>> for loss in (1., 2., 3., 4.):
    ...     printer.update_training(10, 10 * loss, 5)
     Minibatch[   1-   2]: loss = 1.500000 * 20, metric = 50.00% * 20;
     Minibatch[   3-   4]: loss = 3.500000 * 20, metric = 50.00% * 20;
    """

    def __init__(self, freq: int | None = None, first: int = 0, tag: str | float = "", log_to_file: str | None = None,
                 rank: int | None = None, gen_heartbeat: bool = False, num_epochs: float | None = None,
                 test_freq: int | None = None, test_first: int = 0, metric_is_pct: bool = True,
                 distributed_freq: int | None = None, distributed_first: int = 0) -> None:
        self.freq, self.test_freq, distributed_freq = (sys.maxsize if f is None else f
                                                       for f in (freq, test_freq, distributed_freq))
        super().__init__(self.freq, first, self.test_freq, test_first, distributed_freq, distributed_first)
        self.first = first
        self.tag = f"[{tag}] " if tag else ""
        self.gen_heartbeat, self._next_heartbeat = gen_heartbeat, 0.0
        self.num_epochs, self.epochs = num_epochs, 0
        self.metric_is_pct, self.metric_multiplier = metric_is_pct, 100.0 if metric_is_pct else 1.0
        self._since_start, self._since_last = _RunningTotals(), _RunningTotals()
        self.updates_since_start = self.total_updates = 0
        self.epoch_start_time = time.time()
        self.log_to_file = log_to_file
        self.logfilename = None if log_to_file is None else log_to_file + ("" if rank is None else f"rank{rank}")
        if self.logfilename is not None:
            self._begin_file(self.logfilename)
        if self.freq == 0:
            self.log(" average      since    average      since      examples\n"
                     "    loss       last     metric       last              \n"
                     " ------------------------------------------------------")

    def _begin_file(self, name: str) -> None:
        print(f"Redirecting log to file {name}")
        epochs = self.num_epochs or _DEFAULT_EPOCHS
        with open(name, "w") as file:
            file.write(f"{name}\nCNTKCommandTrainInfo: train : {epochs}\n"
                       f"CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : {epochs}\nCNTKCommandTrainBegin: train\n")

    # --- called by a trainer, through ProgressWriter

    def on_write_training_update(self, samples: Counts, updates: Counts, aggregate_loss: Span,
                                 aggregate_metric: Span) -> None:
        """Print loss and metric since the last line."""
        if self.freq == 0:
            self._print_row(samples, aggregate_loss, aggregate_metric)
        else:
            count = samples[1] - samples[0]
            self._print_minibatches(updates[0] + 1, updates[1], _average(_change(aggregate_loss), count),
                                    _average(_change(aggregate_metric), count), count)

    def on_write_test_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Print the metric of a test since the last line."""
        if self.test_freq == 0:
            self._print_row(samples, None, aggregate_metric)
        else:
            count = samples[1] - samples[0]
            self.log(f" Evaluation Minibatch[{updates[0] + 1:4d}-{updates[1]:4d}]: "
                     f"{self._metric(_average(_change(aggregate_metric), count), count)};")

    def on_write_distributed_sync_update(self, samples: Counts, updates: Counts, aggregate_metric: Span) -> None:
        """Print how many synchronizations and samples there were since the last line."""
        self.log(f"Distributed training: #Syncs elapsed = {_change(updates)}, #Samples elapsed = {_change(samples)}")

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Print loss, metric and speed of an epoch."""
        if self.freq != 0:
            self.epochs = summaries
            self._print_epoch(_average(aggregate_loss, samples), _average(aggregate_metric, samples), samples,
                              elapsed_milliseconds / 1000)

    def on_write_test_summary(self, samples: int, updates: int, summaries: int, aggregate_metric: Measured,
                              elapsed_milliseconds: int) -> None:
        """Print the metric of a test."""
        self.log(f"Finished Evaluation [{summaries}]: Minibatch[1-{updates}]: "
                 f"{self._metric(_average(aggregate_metric, samples), samples)};")

    def on_training_update_end(self) -> None:
        """Print a heartbeat if it is time."""
        if self.gen_heartbeat and time.time() >= self._next_heartbeat:
            self._next_heartbeat = time.time() + _HEARTBEAT_SECONDS
            print(f"PROGRESS: {100 * self.epochs / (self.num_epochs or _DEFAULT_EPOCHS):.2f}%", flush=True)

    def write(self, key: str, value: Any) -> None:
        """Print some other value, such as a new learning rate."""
        self.log(f"{key}: {value}")

    # --- called manually by scripts

    def update(self, loss: SupportsFloat, minibatch_size: int, metric: SupportsFloat | None = None) -> None:
        """Count a minibatch, and print a line if it is time.

        Units: ``loss`` and ``metric`` are averages over the samples.
        """
        for running in (self._since_start, self._since_last):
            running.add(loss, metric, minibatch_size)
        self.updates_since_start += 1
        self.total_updates += 1
        if is_due(self.updates_since_start, self.freq, self.first):
            last_loss, last_metric, samples = self._since_last.averages()
            shown_metric = None if metric is None else last_metric
            if self.freq == 0:
                start, last = self._since_start, self._since_last
                self._print_row((start.samples - last.samples, start.samples), _span(start.loss, last.loss),
                                None if metric is None else _span(start.metric, last.metric))
            else:
                begin = max(self.updates_since_start - self.freq, min(self.updates_since_start - 1, self.first)) + 1
                self._print_minibatches(begin, self.updates_since_start, last_loss, shown_metric, samples)
            self.reset_last()
        self.on_training_update_end()

    def update_with_trainer(self, trainer: Any, with_metric: bool = False) -> None:
        """Count the minibatch on which ``trainer`` was trained last."""
        if trainer.previous_minibatch_sample_count:
            self.update(trainer.previous_minibatch_loss_average, trainer.previous_minibatch_sample_count,
                        trainer.previous_minibatch_evaluation_average if with_metric else None)

    def epoch_summary(self, with_metric: bool = False) -> tuple[float, float, int] | None:
        """End an epoch of manual updates: print and return its average loss, average metric and samples.

        With ``freq=0`` it has no effect, as in CNTK: the table continues.
        """
        if self.freq == 0:
            return None
        self.epochs += 1
        loss, metric, samples = self.reset_start()
        self._print_epoch(loss, metric if with_metric else None, samples, time.time() - self.epoch_start_time)
        self.epoch_start_time = time.time()
        return loss, metric, samples

    def reset_start(self) -> tuple[float, float, int]:
        """Restart the totals of the epoch; return average loss, average metric and samples up to now."""
        averages, self._since_start, self.updates_since_start = self._since_start.averages(), _RunningTotals(), 0
        return averages

    def reset_last(self) -> tuple[float, float, int]:
        """Restart the totals of the line; return average loss, average metric and samples up to now."""
        averages, self._since_last = self._since_last.averages(), _RunningTotals()
        return averages

    loss_since_start = _total_property("_since_start", "loss", "Loss of the epoch of manual updates.")
    metric_since_start = _total_property("_since_start", "metric", "Metric of the epoch of manual updates.")
    samples_since_start = _total_property("_since_start", "samples", "Samples of the epoch of manual updates.")
    loss_since_last = _total_property("_since_last", "loss", "Loss since the last line of manual updates.")
    metric_since_last = _total_property("_since_last", "metric", "Metric since the last line of manual updates.")
    samples_since_last = _total_property("_since_last", "samples", "Samples since the last line of manual updates.")

    def avg_loss_since_start(self) -> float:
        """Average loss of the epoch of manual updates."""
        return self._since_start.averages()[0]

    def avg_metric_since_start(self) -> float:
        """Average metric of the epoch of manual updates."""
        return self._since_start.averages()[1]

    def avg_loss_since_last(self) -> float:
        """Average loss since the last line of manual updates."""
        return self._since_last.averages()[0]

    def avg_metric_since_last(self) -> float:
        """Average metric since the last line of manual updates."""
        return self._since_last.averages()[1]

    def log(self, message: str) -> None:
        """Print a line, or append it to the log file."""
        if self.logfilename is None:
            status.clear()
            print(message)
        else:
            with open(self.logfilename, "a") as file:
                file.write(message + "\n")

    def end_progress_print(self, msg: str = "") -> None:
        """Mark the end of training; ``msg`` is written to the log file."""
        self.log("CNTKCommandTrainEnd: train")
        if msg and self.logfilename is not None:
            self.log(msg)

    # --- lines

    def _metric(self, average: float, samples: int) -> str:
        return f"metric = {f'{100 * average:.2f}%' if self.metric_is_pct else f'{average:.6f}'} * {samples}"

    def _loss(self, loss: float, metric: float | None, samples: int) -> str:
        line = f"loss = {loss:.6f} * {samples}"
        return line if metric is None else f"{line}, {self._metric(metric, samples)}"

    def _print_minibatches(self, begin: int, end: int, loss: float, metric: float | None, samples: int) -> None:
        self.log(f" Minibatch[{begin:4d}-{end:4d}]: {self._loss(loss, metric, samples)};")

    def _print_epoch(self, loss: float, metric: float | None, samples: int, seconds: float) -> None:
        epoch = f"{self.epochs}" if self.num_epochs is None else f"{self.epochs} of {self.num_epochs}"
        speed = samples / seconds if seconds else 0
        self.log(f"Finished Epoch[{epoch}]: {self.tag}{self._loss(loss, metric, samples)} "
                 f"{seconds:.3f}s ({speed:5.1f} samples/s);")

    def _print_row(self, samples: Counts, loss: Span | None, metric: Span | None) -> None:
        """Print a row of the table: averages since the start and since the last row; blanks for None."""
        def cells(span: Span | None) -> str:
            if span is None:
                return " " * 19
            return f"{_average(span[1], samples[1]):8.3g}   {_average(_change(span), _change(samples)):8.3g}"
        self.log(f" {cells(loss)}   {cells(metric)}    {samples[1]:10d}")


@public
class TrainingSummaryProgressCallback(ProgressWriter):
    """Calls ``callback(epoch, loss, metric, samples)`` after each epoch.

    Args:
        epoch_size: accepted, as in CNTK; not needed
        callback: the function to call

    Units: epochs count from 0; loss and metric are sums over the samples.

    >>> callback = TrainingSummaryProgressCallback(100, lambda *epoch: print(epoch))
    >>> callback.update_training(10, 2.5, 1)
    >>> callback.write_training_summary()
    (0, 2.5, 1.0, 10)
    """

    def __init__(self, epoch_size: int, callback: Callable[[int, float, float, int], Any]) -> None:
        super().__init__()
        self._callback = callback

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Call the callback."""
        self._callback(summaries - 1, aggregate_loss, aggregate_metric, samples)


@public
def log_number_of_parameters(model: Any, trace_level: int = 0) -> None:
    """Print how many parameters a model has, and with ``trace_level`` above 0 the shape of each.

    >>> from types import SimpleNamespace as Model
    >>> log_number_of_parameters(Model(parameters=[Model(shape=(2, 3)), Model(shape=(3,))]))
    Training 9 parameters in 2 parameter tensors.
    """
    shapes = [parameter.shape for parameter in model.parameters]
    known = all(extent >= 0 for shape in shapes for extent in shape)
    total = sum(map(math.prod, shapes)) if known else "so far unspecified number of"
    print(f"Training {total} parameters in {len(shapes)} parameter tensors.")
    if trace_level > 0:
        print("".join(f"\n\t{shape}" for shape in shapes))


def _average(total: SupportsFloat, samples: int) -> float:
    return float(total) / samples if samples else 0.0


def _change(span: tuple[_Number, _Number]) -> _Number:
    return span[1] - span[0]


def _span(since_start: LazySum, since_last: LazySum) -> Span:
    return float(since_start) - float(since_last), float(since_start)
