"""Where a training session takes its data from: a minibatch source, or arrays in place of one."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from .._typing import AnyArray
from ..device import DeviceDescriptor, use_default_device
from ..io import INFINITELY_REPEAT, MinibatchData, MinibatchSourceFromData, StreamInformation, UserMinibatchSource
from ..ops._operand import as_variable
from ..ops.functions import Function
from ..variables import Variable

Inputs = Mapping[Variable, StreamInformation]  # {argument: stream}
Criterion = Function | Variable | Sequence[Function | Variable | None]  # the loss, or (loss, metric)


class SessionSource(Protocol):
    """What a training session needs of a minibatch source; `MinibatchSource` and users' classes provide it.

    `next_minibatch` returns {stream: data} of at most about this many samples; nothing at the end of the data.
    """

    @property
    def next_minibatch(self) -> Callable[..., Mapping[Any, MinibatchData]]:  # users' sources take other arguments
        """Read the next minibatch."""

    def is_infinite(self) -> bool:
        """Whether the data never end."""

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position, for `restore_from_checkpoint`."""

    def restore_from_checkpoint(self, checkpoint: Mapping[str, Any], /) -> None:
        """Move to the position of a checkpoint."""


Data: TypeAlias = "SessionSource | Sequence[AnyArray | list[AnyArray]]"  # data in the order of a criterion's arguments


def as_source(
    data: Data | None, inputs: Inputs | None, criterion: Criterion | None = None, max_samples: int = INFINITELY_REPEAT
) -> tuple[Any, Inputs | None]:
    """A source, and which argument takes which stream. A tuple or list of arrays becomes a source.

    Errors: ValueError for arrays without a criterion that defines their order, or if their number is not that of its
            arguments.
    """
    if not isinstance(data, (tuple, list)):
        return data, inputs
    if criterion is None:
        raise ValueError("data in place of a minibatch source are of the arguments of a criterion: give criterion=...")
    if inputs:
        raise ValueError("data in place of a minibatch source have no streams: leave out model_inputs_to_streams")
    arguments = _arguments(criterion)
    if len(data) != len(arguments):
        names = ", ".join(a.name or a.uid for a in arguments)
        raise ValueError(
            f"the criterion has {len(arguments)} arguments ({names}), but there are {len(data)} data: give an array or "
            "a list of sequences for each, in this order"
        )
    streams = {
        a.uid: (array, a._type) if isinstance(array, list) else array for a, array in zip(arguments, data, strict=True)
    }
    source = MinibatchSourceFromData(streams, max_samples)
    return source, dict(zip(arguments, source.streams.values(), strict=True))


def _arguments(criterion: Criterion) -> Sequence[Any]:
    loss: Any = criterion[0] if isinstance(criterion, (tuple, list)) else criterion
    return (loss if isinstance(loss, Function) else as_variable(loss).owner).arguments


def next_minibatch(
    source: SessionSource, samples: int, inputs: Inputs, device: DeviceDescriptor | None = None,
    part: tuple[int, int] = (0, 1),
) -> dict[Variable, MinibatchData]:
    """{argument: data}, empty at the end of the source. Streams are matched by name: `inputs` may be of another source.

    `part`: the number of this worker among those that share the minibatch, and their number.
    Errors: RuntimeError if the source has no stream of such a name.
    """
    minibatch = read(source, samples, device, part)
    if not minibatch:
        return {}
    streams = {info.name: data for info, data in minibatch.items()}
    missing = [stream.name for stream in inputs.values() if stream.name not in streams]
    if missing:
        raise RuntimeError(
            f"the minibatch source has no stream {missing[0]!r}; its streams are {', '.join(streams)}: name one of "
            "them in model_inputs_to_streams"
        )
    return {argument: streams[stream.name] for argument, stream in inputs.items()}


@contextmanager
def unmoved(source: SessionSource | None) -> Iterator[None]:
    """A scope at whose end a source is where it was before; without a source it does nothing."""
    position = None if source is None else source.get_checkpoint_state()
    try:
        yield
    finally:
        if source is not None and position is not None:
            source.restore_from_checkpoint(position)


def _is_minibatch(thing: Any) -> bool:
    return isinstance(thing, Mapping) and all(
        isinstance(stream, StreamInformation) and isinstance(data, MinibatchData) for stream, data in thing.items()
    )


def read(
    source: SessionSource, samples: int, device: DeviceDescriptor | None = None, part: tuple[int, int] = (0, 1)
) -> Mapping[Any, MinibatchData]:
    """{stream: data} of the next minibatch of any source. For the arguments see `next_minibatch`."""
    if isinstance(source, UserMinibatchSource):
        minibatch = source.next_minibatch(samples, part[1], part[0], device or use_default_device())
        if minibatch and not _is_minibatch(minibatch):
            raise TypeError(
                f"{type(source).__name__}.next_minibatch returned {reprlib.repr(minibatch)}: return {{stream: "
                "MinibatchData}, where the streams are those of stream_infos(), or {} at the end of the data"
            )
        return minibatch
    if part[1] > 1:
        return source.next_minibatch(samples, device=device, num_data_partitions=part[1], partition_index=part[0])
    return source.next_minibatch(samples, device=device)
