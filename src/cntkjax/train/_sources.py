"""Where a training session takes its data from: a source, or arrays in place of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..device import use_default_device
from ..io import INFINITELY_REPEAT, MinibatchSourceFromData, UserMinibatchSource
from ..ops._operand import as_variable
from ..ops.functions import Function

Inputs = Mapping[Any, Any]  # {argument: stream}


def as_source(
    given: Any, inputs: Inputs | None, criterion: Any = None, max_samples: int = INFINITELY_REPEAT
) -> tuple[Any, Inputs | None]:
    """A source and which argument takes which stream. A tuple or list of arrays becomes a source.

    Errors: ValueError for arrays without a criterion that tells their order, or not as many as it has arguments.
    """
    if not isinstance(given, (tuple, list)):
        return given, inputs
    if criterion is None:
        raise ValueError("data in place of a minibatch source are of the arguments of a criterion: give criterion=...")
    if inputs:
        raise ValueError("data in place of a minibatch source have no streams: leave out model_inputs_to_streams")
    arguments = _arguments(criterion)
    if len(given) != len(arguments):
        names = ", ".join(a.name or a.uid for a in arguments)
        raise ValueError(f"the criterion has {len(arguments)} arguments ({names}), but there are {len(given)} data")
    streams = {
        a.uid: (data, a._type) if isinstance(data, list) else data for a, data in zip(arguments, given, strict=True)
    }
    source = MinibatchSourceFromData(streams, max_samples)
    return source, dict(zip(arguments, source.streams.values(), strict=True))


def _arguments(criterion: Any) -> Sequence[Any]:
    if isinstance(criterion, (tuple, list)):
        criterion = criterion[0]
    return (criterion if isinstance(criterion, Function) else as_variable(criterion).owner).arguments


def next_minibatch(
    source: Any, samples: int, inputs: Inputs, device: Any = None, part: tuple[int, int] = (0, 1)
) -> dict[Any, Any]:
    """{argument: data}, empty at the end of the source. Streams are found by name: `inputs` may be of another source.

    `part`: the number of this worker among those that share the minibatch, and their number.
    Errors: RuntimeError if the source has no stream of such a name.
    """
    if isinstance(source, UserMinibatchSource):
        minibatch = source.next_minibatch(samples, part[1], part[0], device or use_default_device())
    elif part[1] > 1:
        minibatch = source.next_minibatch(
            samples, device=device, num_data_partitions=part[1], partition_index=part[0]
        )
    else:
        minibatch = source.next_minibatch(samples, device=device)
    if not minibatch:
        return {}
    streams = {info.name: data for info, data in minibatch.items()}
    missing = [stream.name for stream in inputs.values() if stream.name not in streams]
    if missing:
        raise RuntimeError(f"the minibatch source has no stream {missing[0]!r}; its streams are {', '.join(streams)}")
    return {argument: streams[stream.name] for argument, stream in inputs.items()}
