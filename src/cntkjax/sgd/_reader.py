"""Where epochs end in the data, and how many time steps minibatches have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..device import DeviceDescriptor
from ..io import MinibatchData, MinibatchSource, StreamInformation
from ..parallel import workers
from ..train._sources import Inputs, SessionSource, read
from ..variables import Variable


@contextmanager
def epoch_of(source: Any, epoch: int, size: int) -> Iterator[dict[str, int]]:
    """A scope in which the data end with an epoch, and what a session then has to limit itself.

    `size`: of an epoch, in samples of the longest stream; 0 for a sweep. Epochs count from 0. Sources of users do not
    end for a while, so a session stops at a minibatch.
    """
    if begins_anew(source):
        source.begin_epoch(size)
        yield {}
        return
    limits = {"max_samples": (epoch + 1) * size} if size else {"max_sweeps": epoch + 1}
    if not hasattr(source, "end_at"):
        yield limits
        return
    source.end_at(**limits)
    try:
        yield {}
    finally:
        source.end_at()


def counts_labels(loss: Variable, inputs: Inputs) -> bool:
    """Whether the samples of the loss are others than the time steps of some input, as in classifying sequences."""
    return any(len(v.dynamic_axes) > 1 and v.dynamic_axes != loss.dynamic_axes for v in inputs)


def begins_anew(source: Any) -> bool:
    """Whether the source is one of CNTK's readers of sentences: each epoch begins at the start of the data."""
    return hasattr(source, "begin_epoch")


def _columns(data: MinibatchData) -> int:
    """The number of time steps if all sequences were as long as the longest: these readers' minibatches have gaps."""
    lengths = data.ragged.lengths
    return data.num_samples if lengths is None else len(lengths) * int(lengths.max())


def shared(source: Any) -> SessionSource:
    """The source, or where several workers would each read other chunks of files, one that they share."""
    is_file = isinstance(source, MinibatchSource) and not source.truncation_length
    return Shares(source) if is_file and workers.size() > 1 else source


class _Around:
    """A reader around another one."""

    def __init__(self, source: SessionSource) -> None:
        self._source = source

    def is_infinite(self) -> bool:
        """Whether the data never end."""
        return self._source.is_infinite()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position in the source."""
        return self._source.get_checkpoint_state()

    def restore_from_checkpoint(self, checkpoint: Mapping[str, Any], /) -> None:
        """Move to a position in the source."""
        self._source.restore_from_checkpoint(checkpoint)


class StepCounter(_Around):
    """A reader that tells the number of time steps of each minibatch, in its longest stream, before it is used.

    `sums`: whether the minibatches of all workers are one.
    """

    def __init__(self, source: SessionSource, inputs: Inputs, on_read: Callable[[int], object], sums: bool) -> None:
        super().__init__(source)
        self._on_read, self._sums = on_read, sums
        self._names = {stream.name for stream in inputs.values()}
        self._padded = begins_anew(source)

    def next_minibatch(
        self, samples: int, device: DeviceDescriptor | None = None, num_data_partitions: int = 1,
        partition_index: int = 0,
    ) -> Mapping[Any, MinibatchData]:
        """The next minibatch."""
        minibatch = read(self._source, samples, device, (partition_index, num_data_partitions))
        steps = max((_columns(data) if self._padded else data.num_samples
                     for info, data in minibatch.items() if info.name in self._names), default=0)
        if self._sums and num_data_partitions > 1:
            steps = sum(int(count) for count in workers.gather("time steps", b"%d" % steps).wait())
        self._on_read(steps)
        return minibatch


class Shares(_Around):
    """A reader of whole minibatches, of which each worker takes every n-th sequence: all together are one worker's.

    On CNTK's command line the order of the data does not depend on the number of workers.
    """

    def next_minibatch(
        self, samples: int, device: DeviceDescriptor | None = None, num_data_partitions: int = 1,
        partition_index: int = 0,
    ) -> Mapping[Any, MinibatchData]:
        """The share of a worker in the next minibatch."""
        minibatch = read(self._source, samples, device)
        if num_data_partitions == 1:
            return minibatch

        def share(info: StreamInformation, data: MinibatchData) -> MinibatchData:
            rows = np.arange(partition_index, data.num_sequences, num_data_partitions)
            return MinibatchData.from_ragged(info, data.ragged.take(rows), data.end_of_sweep)

        return {info: share(info, data) for info, data in minibatch.items()}
