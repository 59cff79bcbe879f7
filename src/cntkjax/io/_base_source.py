"""What the minibatch sources of this package and those of users have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..device import DeviceDescriptor
from ._streams import DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, FULL_DATA_SWEEP, INFINITELY_REPEAT, StreamInformation

if TYPE_CHECKING:
    from ..graph.variable import Edge
    from ._minibatch_data import MinibatchData


class BaseSource:
    """Base class of minibatch sources: a subclass defines ``stream_infos`` and ``get_next_minibatch``."""

    default_randomization_window_in_chunks = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS
    full_data_sweep, infinitely_repeat = FULL_DATA_SWEEP, INFINITELY_REPEAT

    def stream_infos(self) -> list[StreamInformation]:
        """All streams of the source."""
        raise NotImplementedError(f"{type(self).__name__} has to define stream_infos()")

    def stream_info(self, name: str | Edge) -> StreamInformation:
        """The stream with this name, or the only one whose samples a variable takes.

        Errors: RuntimeError if there is no such stream, or several match a variable.

        >>> import numpy as np
        >>> from cntkjax.io import MinibatchSourceFromData
        >>> source = MinibatchSourceFromData({"x": np.zeros((5, 2), np.float32)})
        >>> source.stream_info("x")
        x([2])
        """
        infos = self.stream_infos()
        if isinstance(name, str):
            matches = [info for info in infos if info.name == name]
        else:
            signature = (tuple(name.shape), name.is_sparse, name.dtype)
            matches = [info for info in infos if (info.sample_shape, info.is_sparse, info.dtype) == signature]
        if len(matches) != 1:
            by_name = isinstance(name, str)
            streams = ", ".join((info.name if by_name else repr(info)) for info in reversed(infos))
            example = infos[-1].name if infos else "name"
            raise RuntimeError(
                f"{'Several streams' if matches else 'No stream'} found matching given {'name ' * by_name}{name!r}. "
                f"The streams are: {streams}. "
                + (f"Write one of these names, as in source.streams.{example}" if by_name else
                   f"Select one by its name, as in source.streams.{example}, or declare the input with its shape")
            )
        return matches[0]

    def __getitem__(self, name: str) -> StreamInformation:
        return self.stream_info(name)

    def get_next_minibatch(self, *sizes_and_device: int | DeviceDescriptor) -> Mapping[Any, MinibatchData]:
        """Read the next minibatch, with the arguments of CNTK's compiled module.

        The arguments are a number of samples; or a number of sequences, which has to be 0, a number of samples, and
        optionally the number of workers and the rank of this one. A device may follow.

        Errors: RuntimeError for a number of sequences; those of ``next_minibatch``.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get_next_minibatch(...)")


class MinibatchRequest(NamedTuple):
    """Arguments of ``UserMinibatchSource.next_minibatch``, in its order."""

    num_samples: int
    number_of_workers: int
    worker_rank: int
    device: DeviceDescriptor | None


def parse_request(sizes_and_device: Sequence[int | DeviceDescriptor]) -> MinibatchRequest:
    """The arguments of ``get_next_minibatch``.

    Errors: RuntimeError for a number of sequences.
    """
    sizes = [argument for argument in sizes_and_device if isinstance(argument, int)]
    last = sizes_and_device[-1]
    sequences, samples, workers, rank = {1: (0, *sizes, 1, 0), 2: (*sizes, 1, 0)}.get(len(sizes), sizes)
    if sequences:
        raise RuntimeError("get_next_minibatch: sizes of minibatches are in samples; give 0 sequences")
    return MinibatchRequest(samples, workers, rank, None if isinstance(last, int) else last)
