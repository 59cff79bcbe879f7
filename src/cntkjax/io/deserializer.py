"""What a minibatch source reads from, and how a file format is added.

A deserializer consists of two things in one module: a public function that returns a description, which is a
``Dictionary`` with a ``type``, and a class that is registered for this type and opens what the description names:

    >>> import numpy as np
    >>> from cntkjax.engine.data.ragged import Ragged
    >>> from cntkjax.formats.containers import Dictionary
    >>> from cntkjax.io import MinibatchSource, StreamInformation
    >>> def RangeDeserializer(stop):
    ...     return Dictionary(type="RangeDeserializer", stop=stop)
    >>> @register_deserializer("RangeDeserializer")
    ... class RangeReader(ChunkedDeserializer):
    ...     def __init__(self, description):
    ...         self.stop, self.num_chunks = description["stop"], 1
    ...         self.streams = [StreamInformation("x", 0, "dense", np.float32, (1,))]
    ...     def read_chunk(self, chunk):
    ...         samples = np.arange(self.stop, dtype=np.float32)[:, None]
    ...         return {"x": Ragged(samples, lengths=np.ones(self.stop, np.int32))}
    >>> source = MinibatchSource(RangeDeserializer(3), randomize=False)
    >>> source.next_minibatch(2)[source.streams.x].asarray().ravel()
    array([0., 1.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..engine.data.ragged import Ragged, gathered, offsets_of
from ._streams import StreamInformation

_CACHED_CHUNKS = 4  # in memory, of a deserializer that is read in the order of another one


class Deserializer(Protocol):
    """Sequences of one or several streams, grouped into chunks that are read as a whole.

    A sequence is identified by its chunk and its index in the chunk. All methods may be called from a second thread,
    but never concurrently. ``ChunkedDeserializer`` implements everything but ``read_chunk``.

    Units: lengths are in samples, sizes of chunks in sequences.
    """

    @property
    def path(self) -> str:
        """The file, for messages; several are separated by commas."""

    @property
    def streams(self) -> Sequence[StreamInformation]:
        """The streams, in the order of minibatches."""

    @property
    def num_chunks(self) -> int:
        """Number of chunks; at least 1."""

    reads_whole_chunks: bool
    """Whether reading a sequence reads all others of its chunk as well."""

    reads_per_minibatch: bool
    """Whether a sequence depends on its index in the minibatch, as randomly transformed images do."""

    tumbling_windows: bool
    """Whether randomization windows follow one another without overlap, see ``Sampler``."""

    multithreaded: bool
    """Whether it may use threads of its own; a source sets it before it reads anything."""

    broadcasts: bool
    """Whether each sequence is a single sample that is repeated to the length of the sequences it is joined with."""

    def chunk_sizes(self) -> np.ndarray:
        """Number of sequences in each chunk. Shapes: int64 [chunks]."""

    def sequence_keys(self) -> np.ndarray:
        """Keys by which the sequences of several deserializers are matched. Shapes: [sequences]."""

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """How many samples each sequence of a chunk counts for in a minibatch. Shapes: int [sequences]."""

    def num_samples(self, chunks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """The same for sequences of several chunks. Shapes: int64 [sequences] each -> int64 [sequences]."""

    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read sequences in this order, by name of the stream. Shapes: int64 [sequences] each."""

    def retain(self, chunks: Iterable[int]) -> None:
        """Keep these chunks in memory once they are read, and free all others."""


class ChunkedDeserializer:
    """Base class of deserializers: a subclass sets ``streams`` and ``num_chunks``, and defines ``read_chunk``.

    Everything else has a default that works for any format; a format with an index overrides ``chunk_sizes`` and
    ``sequence_keys``, so that files need not be read to know them.

    >>> class Squares(ChunkedDeserializer):
    ...     num_chunks, streams = 2, [StreamInformation("x", 0, "dense", np.float32, (1,))]
    ...     def read_chunk(self, chunk):
    ...         samples = np.arange(3 * chunk, 3 * chunk + 3, dtype=np.float32)[:, None] ** 2
    ...         return {"x": Ragged(samples, lengths=np.array([2, 1], np.int32))}
    >>> squares = Squares()
    >>> squares.chunk_sizes(), squares.take(np.array([1, 0]), np.array([1, 0]))["x"].data.ravel()
    (array([2, 2]), array([25.,  0.,  1.], dtype=float32))
    """

    path: str = ""
    """The file, for messages; several are separated by commas."""

    streams: Sequence[StreamInformation]
    num_chunks: int
    reads_whole_chunks: bool = True
    reads_per_minibatch: bool = False
    tumbling_windows: bool = False
    broadcasts: bool = False
    multithreaded: bool = True
    multithreaded_by_default: ClassVar[bool] = False

    @classmethod
    def open(cls, description: Mapping[str, Any], frame_mode: bool = False) -> Deserializer:
        """Open what a description names. Formats whose frames can be sequences of their own use ``frame_mode``."""
        return cls(description)  # type: ignore[call-arg]

    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """Read a chunk, by name of the stream; all streams have the same number of sequences."""
        raise NotImplementedError(f"{type(self).__name__} has to define read_chunk(chunk)")

    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read sequences in this order, by name of the stream. Shapes: int64 [sequences] each."""
        parts = [(self._chunk(chunk), indices[where], where) for chunk, where in group_by_chunk(chunks)]
        if len(parts) == 1:
            ((data, rows, _),) = parts
            return {s.name: data[s.name].take(_slice_or_array(rows)) for s in self.streams}
        return {s.name: gathered([(data[s.name], rows, where) for data, rows, where in parts]) for s in self.streams}

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """How many samples each sequence of a chunk counts for. By default, the chunk is read to find out."""
        if chunk not in self._known_lengths:
            self._chunk(chunk)
        return self._known_lengths[chunk]

    def num_samples(self, chunks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """The same for sequences of several chunks. Shapes: int64 [sequences] each -> int64 [sequences]."""
        samples = np.empty(len(chunks), np.int64)
        for chunk, where in group_by_chunk(chunks):
            samples[where] = self.sequence_lengths(chunk)[indices[where]]
        return samples

    def chunk_sizes(self) -> np.ndarray:
        """Number of sequences in each chunk. By default, all chunks are read to find out. Shapes: int64 [chunks]."""
        return np.array([len(self.sequence_lengths(chunk)) for chunk in range(self.num_chunks)])

    def sequence_keys(self) -> np.ndarray:
        """Keys by which sequences are matched; by default their numbers. Shapes: [sequences]."""
        return np.arange(self.chunk_sizes().sum())

    def retain(self, chunks: Iterable[int]) -> None:
        """Keep these chunks in memory once they are read, and free all others. Without it, the last few are kept."""
        self._retained = set(chunks)
        for chunk in self._cache.keys() - self._retained:
            del self._cache[chunk]

    def record_lengths(self, chunk: int, data: Mapping[str, Ragged]) -> None:
        """Called with each chunk that was read: keeps the lengths of its sequences for ``sequence_lengths``.

        The longest stream counts, or the one that defines the minibatch size.
        """
        defining = [s.name for s in self.streams if s.m_defines_mb_size] or list(data)
        self._known_lengths[chunk] = np.max([np.diff(data[name].offsets) for name in defining], axis=0)

    def _chunk(self, chunk: int) -> Mapping[str, Ragged]:
        if chunk in self._cache:
            return self._cache[chunk]
        data = self.read_chunk(chunk)
        self.record_lengths(chunk, data)
        if self._retained is None or chunk in self._retained:
            self._cache[chunk] = data
        if self._retained is None and len(self._cache) > _CACHED_CHUNKS:
            del self._cache[next(iter(self._cache))]
        return data

    _retained: set[int] | None = None

    @cached_property
    def _cache(self) -> dict[int, Mapping[str, Ragged]]:
        return {}

    @cached_property
    def _known_lengths(self) -> dict[int, np.ndarray]:
        return {}


_REGISTRY: dict[str, type[ChunkedDeserializer]] = {}
_Reader = TypeVar("_Reader", bound=type[ChunkedDeserializer])


def register_deserializer(*types: str) -> Callable[[_Reader], _Reader]:
    """Class decorator: ``MinibatchSource`` opens descriptions of these types with the class.

    Errors: ValueError if another class is registered for a type.

    >>> @register_deserializer("EmptyDeserializer")
    ... class Empty(ChunkedDeserializer):
    ...     streams, num_chunks = (), 0
    ...     def __init__(self, description): ...
    >>> open_deserializer({"type": "EmptyDeserializer"}).num_chunks
    0
    """

    def register(reader: _Reader) -> _Reader:
        for name in types:
            registered = _REGISTRY.setdefault(name, reader)
            if (registered.__module__, registered.__qualname__) != (reader.__module__, reader.__qualname__):
                raise ValueError(
                    f"register_deserializer: {name!r} is registered for {registered.__name__} already; choose another "
                    "type"
                )
            _REGISTRY[name] = reader
        return reader

    return register


def open_deserializer(description: object, frame_mode: bool = False) -> Deserializer:
    """Open a description with the class that is registered for its type.

    Errors: TypeError if it is no description, or of an unknown type; those of the class.
    """
    if not isinstance(description, Mapping):
        raise TypeError(
            f"MinibatchSource: {description!r} is no deserializer; pass the result of CTFDeserializer(...) or another "
            "function of cntkjax.io whose name ends in Deserializer, or an instance of a UserDeserializer"
        )
    reader = _registered(description)
    if reader is None:
        raise TypeError(
            f"MinibatchSource: no deserializer is registered for the type {description.get('type')!r}. The types are: "
            f"{', '.join(_REGISTRY)}. Register a class with @cntkjax.io.deserializer.register_deserializer(type)"
        )
    return reader.open(description, frame_mode)


def is_multithreaded_by_default(description: object) -> bool:
    """Whether CNTK decodes such data with several threads unless it is told otherwise."""
    reader = _registered(description)
    return reader is not None and reader.multithreaded_by_default


def _registered(description: object) -> type[ChunkedDeserializer] | None:
    return _REGISTRY.get(description.get("type", "")) if isinstance(description, Mapping) else None


def enumerate_sequences(chunk_sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chunk of each sequence, and its index in the chunk.

    Shapes: int64 [chunks] -> int64 [sequences], int64 [sequences].

    >>> enumerate_sequences(np.array([2, 1]))
    (array([0, 0, 1]), array([0, 1, 0]))
    """
    chunks = np.repeat(np.arange(len(chunk_sizes)), chunk_sizes)
    return chunks, np.arange(len(chunks)) - offsets_of(chunk_sizes)[chunks]


def group_by_chunk(chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each chunk that occurs, with the positions at which it occurs.

    >>> [(chunk, where.tolist()) for chunk, where in group_by_chunk(np.array([7, 2, 7]))]
    [(2, [1]), (7, [0, 2])]
    """
    order = np.argsort(chunks, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(chunks[order])) + 1) if len(order) else ():
        yield int(chunks[where[0]]), where


def _slice_or_array(indices: np.ndarray) -> slice | np.ndarray:
    """Consecutive indices as a slice, which needs no copy."""
    first, last = int(indices[0]), int(indices[-1])
    return slice(first, last + 1) if last - first == len(indices) - 1 and (np.diff(indices) == 1).all() else indices


__all__ = ["ChunkedDeserializer", "Deserializer", "register_deserializer"]
