"""Names and shapes of the streams of a deserializer or minibatch source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .._typing import Count, DTypeLike, Shape
from ..graph.arguments import public
from ..graph.shape import NDShape
from ..variables import Record

INFINITELY_REPEAT = 2**64 - 1
"""For ``max_samples`` and ``max_sweeps``: the source never ends."""

FULL_DATA_SWEEP = 2**64 - 2
"""For ``max_samples``: the source ends after one sweep through the data."""

DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS = 128
"""Default size of the randomization window: how many chunks are shuffled together."""


@public
class StreamDefs(Record):
    """The streams of a deserializer: ``StreamDefs(name=StreamDef(...), ...)``.

    >>> StreamDefs(query=StreamDef(field="S0", shape=943, is_sparse=True)).query.stream_alias
    'S0'
    """


@public
def StreamDef(
    field: str | None = None,
    shape: Count | Sequence[Count] | None = None,
    is_sparse: bool = False,
    transforms: list[dict] | None = None,
    context: tuple[int, int] | None = None,
    scp: str | list[str] | None = None,
    mlf: str | list[str] | None = None,
    broadcast: bool | None = None,
    defines_mb_size: bool = False,
    max_sequence_length: int = 65535,
) -> Record:
    """Define one stream of a deserializer.

    Args:
        field: its name in the file, which may differ from its name in ``StreamDefs``
        shape: number of elements of a sample
        is_sparse: whether the values are written as ``index:value``
        transforms: transforms that are applied to the images in this order (see ``cntkjax.io.transforms``)
        context: numbers of frames to the left and right that are concatenated to each frame (speech)
        scp: script file that lists the feature files (speech)
        mlf: label file or files (speech)
        broadcast: whether each sequence is one vector that is repeated for every frame (speech)
        defines_mb_size: whether minibatch sizes count the samples of this stream
        max_sequence_length: accepted; longer utterances are read all the same (speech)

    >>> dict(StreamDef(field="labels", shape=129, is_sparse=True, defines_mb_size=True))
    {'stream_alias': 'labels', 'is_sparse': True, 'defines_mb_size': True, 'max_sequence_length': 65535, 'dim': 129}
    """
    options = {
        "dim": shape, "transforms": transforms, "context": context, "scp": scp, "mlf": mlf, "broadcast": broadcast
    }
    return Record(
        stream_alias=field,
        is_sparse=is_sparse or mlf is not None,
        defines_mb_size=defines_mb_size,
        max_sequence_length=max_sequence_length,
        **{key: value for key, value in options.items() if value is not None},
    )


@public
class StreamConfiguration:
    """Configures one stream of a deserializer, as CNTK's compiled module does.

    Args:
        name: its name in minibatches
        dim: number of elements of a sample
        is_sparse: whether the values are written as ``index:value``
        stream_alias: its name in the file; if empty, the name in minibatches
        defines_mb_size: whether minibatch sizes count the samples of this stream

    >>> StreamConfiguration("query", 943, is_sparse=True, stream_alias="S0").m_stream_alias
    'S0'
    """

    def __init__(
        self, name: str, dim: int, is_sparse: bool = False, stream_alias: str = "", defines_mb_size: bool = False
    ) -> None:
        self.m_stream_name, self.m_dim, self.m_is_sparse = name, dim, is_sparse
        self.m_stream_alias, self.m_defines_mb_size = stream_alias, defines_mb_size


@public
class StreamInformation:
    """Describes a stream of a minibatch source; minibatches are dictionaries with these as keys.

    Args:
        name: unique in a source
        stream_id: index in the source
        storage_format: 'dense' or 'sparse'
        dtype: type of the elements
        shape: shape of one sample
        defines_mb_size: whether minibatch sizes count the samples of this stream

    Errors: KeyError for another storage format.

    >>> info = StreamInformation("x", 0, "dense", np.float32, (2, 3))
    >>> info, info.name, info.sample_shape, info == StreamInformation("x", 0, "dense", np.float32, (2, 3))
    (x([2 x 3]), 'x', (2, 3), True)
    """

    def __init__(
        self,
        name: str,
        stream_id: int,
        storage_format: str,
        dtype: DTypeLike,
        shape: Sequence[int],
        defines_mb_size: bool = False,
    ) -> None:
        self.m_name, self.m_id, self.m_defines_mb_size = name, stream_id, defines_mb_size
        self.m_storage_format = {"dense": 0, "sparse": 1}[storage_format]
        self.storage_format, self.sample_shape = storage_format, tuple(shape)
        self.dtype = np.dtype(dtype)
        self.m_element_type = {"float32": 1, "float64": 2}.get(self.dtype.name, 0)
        self.m_sample_layout = NDShape(self.sample_shape[::-1])

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.m_name

    @property
    def is_sparse(self) -> bool:
        """Whether the samples are sparse."""
        return self.m_storage_format == 1

    @property
    def _identity(self) -> tuple[str, int, int, Shape]:
        return self.m_name, self.m_id, self.m_storage_format, self.sample_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamInformation) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        """As it is printed."""
        return f"{self.m_name}([{' x '.join(map(str, self.sample_shape))}])"

    as_string = __repr__


def stream_information(name: str, number: int, definition: Mapping[str, Any]) -> StreamInformation:
    """The float32 stream that an entry of a description's ``input`` defines."""
    dim = definition["dim"]
    shape = (dim,) if isinstance(dim, (int, np.integer)) else tuple(dim)
    storage = "sparse" if definition["format"] == "sparse" else "dense"
    return StreamInformation(name, number, storage, np.float32, shape, definition.get("definesMBSize", False))


def stream_definitions(streams: Mapping[str, Record]) -> dict[str, dict[str, Any]]:
    """The ``input`` of a description: streams, as ``StreamDefs`` has them, under the names of CNTK's readers."""
    return {
        name: {
            "alias": stream.stream_alias,
            "format": "sparse" if stream.is_sparse else "dense",
            "dim": stream.dim,
            "definesMBSize": stream.defines_mb_size,
        }
        for name, stream in streams.items()
    }


def sample_size(info: StreamInformation) -> int:
    """Number of elements of a sample."""
    return prod(info.sample_shape)
