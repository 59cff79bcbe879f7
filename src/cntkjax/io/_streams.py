"""What streams of data are called and how their samples look; what a deserializer has to give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged, offsets_of
from ..graph.shape import NDShape
from ..variables import Record

INFINITELY_REPEAT = 2**64 - 1
"""For ``max_samples`` and ``max_sweeps``: the source never ends."""

FULL_DATA_SWEEP = 2**64 - 2
"""For ``max_samples``: the source ends with the data."""

DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS = 128
"""How many chunks are shuffled together, if nothing else is said."""


_KEPT = 4  # chunks in memory, of deserializers that are read in the order of another one


class StreamDefs(Record):
    """The streams of a deserializer: ``StreamDefs(name=StreamDef(...), ...)``.

    Example:
        >>> StreamDefs(query=StreamDef(field="S0", shape=943, is_sparse=True)).query.stream_alias
        'S0'
    """


def StreamDef(
    field: str | None = None,
    shape: int | Sequence[int] | None = None,
    is_sparse: bool = False,
    transforms: list[dict] | None = None,
    context: tuple[int, int] | None = None,
    scp: str | list[str] | None = None,
    mlf: str | list[str] | None = None,
    broadcast: bool | None = None,
    defines_mb_size: bool = False,
    max_sequence_length: int = 65535,
) -> Record:
    """One stream of a deserializer.

    Args:
        field: its name in the file, which may differ from the name it gets in ``StreamDefs``
        shape: number of elements of a sample
        is_sparse: whether the values are written as ``index:value``
        transforms: what is done to the images of this stream, one after the other (see ``cntkjax.io.transforms``)
        context: frames to the left and right that are joined to each frame (speech)
        scp: list of feature files (speech)
        mlf: label files (speech)
        broadcast: whether each sequence has one vector that is repeated for every frame (speech)
        defines_mb_size: whether the size of a minibatch is counted in samples of this stream
        max_sequence_length: longer utterances are left out (speech)

    Example:
        >>> dict(StreamDef(field="labels", shape=129, is_sparse=True, defines_mb_size=True))
        {'stream_alias': 'labels', 'is_sparse': True, 'defines_mb_size': True, 'max_sequence_length': 65535, 'dim': 129}
    """
    given = {"dim": shape, "transforms": transforms, "context": context, "scp": scp, "mlf": mlf, "broadcast": broadcast}
    return Record(
        stream_alias=field,
        is_sparse=is_sparse or mlf is not None,
        defines_mb_size=defines_mb_size,
        max_sequence_length=max_sequence_length,
        **{key: value for key, value in given.items() if value is not None},
    )


class StreamConfiguration:
    """A stream as a deserializer is told to read it.

    Args:
        name: its name in minibatches
        dim: number of elements of a sample
        is_sparse: whether the values are written as ``index:value``
        stream_alias: its name in the file; empty: the same as in minibatches
        defines_mb_size: whether the size of a minibatch is counted in samples of this stream

    Example:
        >>> StreamConfiguration("query", 943, is_sparse=True, stream_alias="S0").m_stream_alias
        'S0'
    """

    def __init__(
        self, name: str, dim: int, is_sparse: bool = False, stream_alias: str = "", defines_mb_size: bool = False
    ) -> None:
        self.m_stream_name, self.m_dim, self.m_is_sparse = name, dim, is_sparse
        self.m_stream_alias, self.m_defines_mb_size = stream_alias, defines_mb_size


class StreamInformation:
    """What a source says about one of its streams; the key under which minibatches keep its data.

    Args:
        name: unique in a source
        stream_id: number in the source
        storage_format: 'dense' or 'sparse'
        dtype: type of the elements
        shape: of one sample
        defines_mb_size: whether the size of a minibatch is counted in samples of this stream

    Errors: KeyError for another storage format.

    Example:
        >>> info = StreamInformation("x", 0, "dense", np.float32, (2, 3))
        >>> info, info.name, info.sample_shape, info == StreamInformation("x", 0, "dense", np.float32, (2, 3))
        (x([2 x 3]), 'x', (2, 3), True)
    """

    def __init__(
        self,
        name: str,
        stream_id: int,
        storage_format: str,
        dtype: Any,
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
    def _identity(self) -> tuple:
        return self.m_name, self.m_id, self.m_storage_format, self.sample_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamInformation) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"{self.m_name}([{' x '.join(map(str, self.sample_shape))}])"

    as_string = __repr__


class Source:
    """What sources of CNTK and of users have in common. They have ``stream_infos`` and ``get_next_minibatch``."""

    default_randomization_window_in_chunks = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS
    full_data_sweep, infinitely_repeat = FULL_DATA_SWEEP, INFINITELY_REPEAT

    def stream_infos(self) -> list[StreamInformation]:
        """The streams, as a list of ``StreamInformation``."""
        raise NotImplementedError(f"{type(self).__name__} has to define stream_infos()")

    def stream_info(self, name: Any) -> StreamInformation:
        """The stream of this name, or the one that has what a variable takes.

        Errors: RuntimeError if there is none, or there are several for a variable.
        """
        infos = self.stream_infos()
        if isinstance(name, str):
            found = [info for info in infos if info.name == name]
        else:
            wanted = (tuple(name.shape), name.is_sparse, name.dtype)
            found = [info for info in infos if (info.sample_shape, info.is_sparse, info.dtype) == wanted]
        if len(found) != 1:
            raise RuntimeError(
                f"{'Several streams' if found else 'No stream'} found matching given {'name ' * isinstance(name, str)}"
                f"{name!r}. The streams are: {', '.join(info.name for info in reversed(infos))}"
            )
        return found[0]

    def __getitem__(self, name: str) -> StreamInformation:
        return self.stream_info(name)

    def get_next_minibatch(self, *sizes_and_device: Any) -> Any:
        """``next_minibatch`` as CNTK's compiled module has it: the arguments are a number of samples; or of sequences,
        which has to be 0, and of samples, and with them how many workers share the minibatch and which one this is.
        A device may stand behind them.

        Errors: RuntimeError for a number of sequences; those of ``next_minibatch``.
        """
        raise NotImplementedError


def share_of(sizes_and_device: Sequence[Any]) -> tuple[int, int, int, Any]:
    """Samples, number of workers, which one this is, and the device: the arguments of ``get_next_minibatch``."""
    *sizes, device = *(a for a in sizes_and_device if isinstance(a, int)), sizes_and_device[-1]
    sequences, samples, parts, index = {1: (0, *sizes, 1, 0), 2: (*sizes, 1, 0)}.get(len(sizes), sizes)
    if sequences:
        raise RuntimeError("get_next_minibatch: sizes of minibatches are in samples; give 0 sequences")
    return samples, parts, index, None if isinstance(device, int) else device


class Deserializer:
    """Where a source gets its data: sequences of several streams, in chunks that are read as a whole.

    The base of all readers of files. ``streams`` says what there is, ``num_chunks`` how many chunks; a sequence is
    known by its chunk and its place there. A second thread may call all methods, though not at the same time.
    """

    streams: Sequence[StreamInformation]
    num_chunks: int
    in_chunks = True  # else any sequence can be read without the others of its chunk
    by_minibatch = False  # what a sequence becomes depends on its place in a minibatch
    tumbles = False  # windows of shuffling do not overlap, see ``Order``
    expands = False  # its sequences of one sample stand for all samples of those that they are joined with

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        """The data of a chunk by stream, with the same number of sequences in all of them."""
        raise NotImplementedError

    def take(self, chunk: np.ndarray, place: np.ndarray) -> Mapping[str, Ragged]:
        """Some sequences in this order, by stream; if ``by_minibatch``, those of one."""
        groups = list(by_chunk(chunk))
        parts = [(self._chunk(number), _slice_or_array(place[where])) for number, where in groups]
        back = _slice_or_array(np.argsort(np.concatenate([where for _, where in groups])))
        return {
            s.name: Ragged.concatenate([data[s.name].take(at) for data, at in parts]).take(back) for s in self.streams
        }

    def lengths(self, chunk: int) -> np.ndarray:
        """How many samples each sequence of a chunk counts for in a minibatch. May have to read the chunk."""
        if chunk not in self._known_lengths:
            self._chunk(chunk)
        return self._known_lengths[chunk]

    def samples(self, chunk: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The same of some sequences."""
        samples = np.empty(len(chunk), np.int64)
        for number, where in by_chunk(chunk):
            samples[where] = self.lengths(number)[place[where]]
        return samples

    def sizes(self) -> np.ndarray:
        """How many sequences each chunk has. May have to read them."""
        return np.array([len(self.lengths(chunk)) for chunk in range(self.num_chunks)])

    def keys(self) -> np.ndarray:
        """What sequences of several deserializers are matched by: their numbers, or what the file has instead."""
        return np.arange(self.sizes().sum())

    def hold(self, chunks: Iterable[int]) -> None:
        """Says which chunks are to stay in memory once they were read. Without it these are the last few."""
        self._wanted = set(chunks)
        for chunk in self._held.keys() - self._wanted:
            del self._held[chunk]

    def _chunk(self, chunk: int) -> Mapping[str, Ragged]:
        if chunk in self._held:
            return self._held[chunk]
        data = self.read(chunk)
        if self._wanted is None or chunk in self._wanted:
            self._held[chunk] = data
        if self._wanted is None and len(self._held) > _KEPT:
            del self._held[next(iter(self._held))]
        return data

    _wanted: set[int] | None = None

    @cached_property
    def _held(self) -> dict[int, Mapping[str, Ragged]]:
        return {}

    @cached_property
    def _known_lengths(self) -> dict[int, np.ndarray]:
        return {}

    def _keep_lengths(self, chunk: int, data: Mapping[str, Ragged]) -> None:
        defining = [s.name for s in self.streams if s.m_defines_mb_size] or list(data)
        self._known_lengths[chunk] = np.max([np.diff(data[name].offsets) for name in defining], axis=0)


def places_of(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all sequences of chunks of these sizes, the chunk and the place in it.

    Example:
        >>> places_of(np.array([2, 1]))
        (array([0, 0, 1]), array([0, 1, 0]))
    """
    chunk = np.repeat(np.arange(len(sizes)), sizes)
    return chunk, np.arange(len(chunk)) - offsets_of(sizes)[chunk]


def by_chunk(chunk: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The numbers of the chunks of some sequences, each with the places of its sequences in the array.

    Example:
        >>> [(number, where.tolist()) for number, where in by_chunk(np.array([7, 2, 7]))]
        [(2, [1]), (7, [0, 2])]
    """
    order = np.argsort(chunk, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1):
        yield int(chunk[where[0]]), where


def _slice_or_array(places: np.ndarray) -> slice | np.ndarray:
    """Places one after the other as a slice, which needs no copy."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first == len(places) - 1 and (np.diff(places) == 1).all() else places


def stream_information(name: str, number: int, definition: Mapping) -> StreamInformation:
    """Of a stream in the configuration of a deserializer, whose elements are float32."""
    dim = definition["dim"]
    shape = (dim,) if isinstance(dim, (int, np.integer)) else tuple(dim)
    storage = "sparse" if definition["format"] == "sparse" else "dense"
    return StreamInformation(name, number, storage, np.float32, shape, definition.get("definesMBSize", False))


def width(info: StreamInformation) -> int:
    """Number of elements of a sample."""
    return prod(info.sample_shape)
