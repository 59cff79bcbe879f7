"""Where epochs end in the data, and how many time steps minibatches have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..device import DeviceDescriptor
from ..io import MinibatchData
from ..parallel import workers
from ..train._sources import Inputs, Reader, read
from ..variables import Variable


@contextmanager
def epoch_of(source: Any, epoch: int, size: int) -> Iterator[dict[str, int]]:
    """A scope in which the data end with an epoch, and what a session then has to limit itself.

    `size`: of an epoch, in samples of the longest stream; 0 for a sweep. Epochs count from 0. Sources of users do not
    end for a while, so a session stops at a minibatch.
    """
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


class StepCounter:
    """A reader that tells the number of time steps of each minibatch, in its longest stream, before it is used.

    `sums`: whether the minibatches of all workers are one.
    """

    def __init__(self, source: Reader, inputs: Inputs, on_read: Callable[[int], object], sums: bool) -> None:
        self._source, self._on_read, self._sums = source, on_read, sums
        self._names = {stream.name for stream in inputs.values()}

    def next_minibatch(
        self, samples: int, device: DeviceDescriptor | None = None, num_data_partitions: int = 1,
        partition_index: int = 0,
    ) -> Mapping[Any, MinibatchData]:
        """The next minibatch."""
        minibatch = read(self._source, samples, device, (partition_index, num_data_partitions))
        steps = max((data.num_samples for info, data in minibatch.items() if info.name in self._names), default=0)
        if self._sums and num_data_partitions > 1:
            steps = sum(int(count) for count in workers.gather("time steps", b"%d" % steps).wait())
        self._on_read(steps)
        return minibatch

    def is_infinite(self) -> bool:
        """Whether the data never end."""
        return self._source.is_infinite()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position in the source."""
        return self._source.get_checkpoint_state()

    def restore_from_checkpoint(self, checkpoint: Mapping[str, Any], /) -> None:
        """Move to a position in the source."""
        self._source.restore_from_checkpoint(checkpoint)
