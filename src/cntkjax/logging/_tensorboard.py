"""Records progress for TensorBoard."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._typing import ArrayLike, Measured
from ..graph.arguments import public
from ..graph.function import Node
from ._progress_writer import Counts, ProgressWriter, Span
from ._tensorboard_graph import graph_definition

_BINS = 30  # of histograms; TensorBoard draws as many


@public
class TensorBoardProgressWriter(ProgressWriter):
    """Writes loss and metric into an event file, for ``tensorboard --logdir <log_dir>`` to show.

    Args:
        freq: minibatches between data points; None: one per epoch
        log_dir: folder of the event file
        rank: rank of this worker; only worker 0 writes
        model: function whose graph TensorBoard shows

    Errors: ImportError, with the pip command to run, if tensorboardX is not installed; RuntimeError after ``close``.
    Source: the tags and steps are those of CNTK 2.7's event files.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     writer = TensorBoardProgressWriter(log_dir=folder)
    ...     writer.write_value("learning_rate", 0.1, step=1)
    ...     writer.close()
    ...     len(os.listdir(folder))
    1
    """

    def __init__(self, freq: int | None = None, log_dir: str = ".", rank: int | None = None,
                 model: Node | None = None) -> None:
        super().__init__(sys.maxsize if freq is None else freq)
        self.closed = False
        self._file = None if rank else _EventFile(log_dir)
        if self._file is not None and model is not None:
            self._file.add_graph(model)

    def write_value(self, name: str, value: Measured, step: int) -> None:
        """Record a number at a step."""
        self._check_open()
        if self._file is not None:
            self._file.add_number(name, np.asarray(value, np.float64).item(), step)

    def write_image(self, name: str, data: Mapping[Any, np.ndarray], step: int) -> None:
        """Records images, given as ``{variable: batch}``, under ``name/image/0`` and so on.

        Shapes: a batch is [images, channels, height, width] with 1 channel, or 3 in the order blue, green, red.
        Units: intensities from 0 to 255.
        Errors: ValueError for other shapes.
        """
        self._check_open()
        for batch in data.values():
            images = np.asarray(batch)
            if images.ndim != 4 or images.shape[1] not in (1, 3):
                raise ValueError(f"write_image '{name}': a batch has shape {images.shape}; reshape it to "
                                 "(images, channels, height, width) with 1 or 3 channels")
            if self._file is not None:
                for i, image in enumerate(np.clip(images, 0, 255).astype(np.uint8)):
                    self._file.add_image(f"{name}/image/{i}", image[::-1], step)

    def write_histogram(self, name: str, values: ArrayLike, step: int) -> None:
        """Record the distribution of the elements of an array, such as a parameter. CNTK has no such method.

        Errors: ValueError for an array without elements, or with infinite or NaN elements.
        """
        self._check_open()
        elements = np.asarray(values, np.float64).reshape(-1)
        if not len(elements) or not np.isfinite(elements).all():
            raise ValueError(f"write_histogram '{name}': needs finite elements, but {np.isfinite(elements).sum()} of "
                             f"{len(elements)} are")
        if self._file is not None:
            self._file.add_histogram(name, elements, step)

    def flush(self) -> None:
        """Write everything recorded so far to the file."""
        self._check_open()
        if self._file is not None:
            self._file.events.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._check_open()
        self.closed = True
        if self._file is not None:
            self._file.events.close()

    def on_write_training_update(self, samples: Counts, updates: Counts, aggregate_loss: Span,
                                 aggregate_metric: Span) -> None:
        """Write average loss and metric since the last data point."""
        count = samples[1] - samples[0]
        for name, (before, now) in (("loss", aggregate_loss), ("metric", aggregate_metric)):
            self.write_value(f"minibatch/avg_{name}", (now - before) / count if count else 0,
                             self.total_training_updates())

    def on_write_training_summary(self, samples: int, updates: int, summaries: int, aggregate_loss: Measured,
                                  aggregate_metric: Measured, elapsed_milliseconds: int) -> None:
        """Write average loss and metric of an epoch."""
        for name, total in (("loss", aggregate_loss), ("metric", aggregate_metric)):
            self.write_value(f"summary/avg_{name}", total / samples if samples else 0, summaries)

    def on_write_test_summary(self, samples: int, updates: int, summaries: int, aggregate_metric: Measured,
                              elapsed_milliseconds: int) -> None:
        """Write the average metric of a test, at the step of the training if there was any."""
        average = aggregate_metric / samples if samples else 0
        if self.total_training_updates():
            self.write_value("minibatch/test_avg_metric", average, self.total_training_updates())
        else:
            self.write_value("summary/test_avg_metric", average, summaries)

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("this TensorBoardProgressWriter is closed; create a new one")


class _EventFile:
    """An event file that is written synchronously; tensorboardX's SummaryWriter uses a thread, even in ``flush``."""

    def __init__(self, log_dir: str) -> None:
        try:
            from tensorboardX import event_file_writer, summary
        except ImportError as error:
            raise ImportError('TensorBoardProgressWriter needs tensorboardX: '
                              'pip install "cntkjax[tensorboard]"') from error
        self._summary = summary
        self._event = event_file_writer.event_pb2.Event
        os.makedirs(log_dir, exist_ok=True)
        self.events = event_file_writer.EventsWriter(os.path.join(log_dir, "events"))

    def add_number(self, tag: str, value: float, step: int) -> None:
        """Write a number."""
        self._add(tag, self._summary.Summary(value=[self._summary.Summary.Value(simple_value=value)]), step)

    def add_image(self, tag: str, image: np.ndarray, step: int) -> None:
        """Write an image. Shapes: uint8 [channels, height, width]."""
        self._add(tag, self._summary.image(tag, image), step)

    def add_histogram(self, tag: str, elements: np.ndarray, step: int) -> None:
        """Write a histogram. Shapes: float64 [elements]."""
        self._add(tag, self._summary.histogram(tag, elements, bins=_BINS), step)

    def add_graph(self, model: Node) -> None:
        """Write the graph of a function."""
        definition = graph_definition(model)
        self.events.write_event(self._event(wall_time=time.time(), graph_def=definition.SerializeToString()))

    def _add(self, tag: str, summary: Any, step: int) -> None:
        summary.value[0].tag = tag  # the functions of tensorboardX replace spaces and other characters
        self.events.write_event(self._event(wall_time=time.time(), step=step, summary=summary))
