"""Deserializers that users write in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, SupportsIndex

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ..graph.arguments import public
from ..graph.dtypes import holds_numbers
from ..graph.errors import ResultError
from ._streams import StreamInformation, sample_size
from .deserializer import ChunkedDeserializer


@public
class UserDeserializer:
    """Base class of deserializers in Python: override ``stream_infos``, ``num_chunks`` and ``get_chunk``.

    >>> class Squares(UserDeserializer):
    ...     def stream_infos(self):
    ...         return [StreamInformation("x", 0, "dense", np.float32, (1,))]
    ...     def num_chunks(self):
    ...         return 2
    ...     def get_chunk(self, chunk_id):
    ...         return {"x": np.arange(3, dtype=np.float32)[:, None] ** 2}
    >>> sorted(Squares().get_chunk(0))
    ['x']
    """

    def stream_infos(self) -> list[StreamInformation]:
        """All streams of the deserializer."""
        raise NotImplementedError(f"{type(self).__name__} has to define stream_infos()")

    def num_chunks(self) -> int:
        """Number of chunks."""
        raise NotImplementedError(f"{type(self).__name__} has to define num_chunks()")

    def get_chunk(self, chunk_id: int) -> Mapping[str, Any]:
        """Read a chunk, by name of the stream; all streams have the same number of sequences.

        An array or sparse matrix holds a sequence of one sample in each row. A list holds a sequence in each item: an
        array, or a sparse matrix with a row for each step.

        Shapes: arrays [samples, *sample_shape]; items of lists [steps, *sample_shape].
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get_chunk(chunk_id)")


class UserDeserializerReader(ChunkedDeserializer):
    """Reads and validates the chunks of a ``UserDeserializer``.

    Errors: RuntimeError for a deserializer without chunks or streams, and for chunks that do not match the streams.
    """

    tumbling_windows = True

    def __init__(self, user: UserDeserializer) -> None:
        self._user = user
        self._lock = Lock()  # so that users need not care about threads
        self.num_chunks = self._call("num_chunks")
        streams = self._call("stream_infos")
        if not isinstance(self.num_chunks, SupportsIndex):
            raise TypeError(f"{type(user).__name__}.num_chunks has to return a whole number, not {self.num_chunks!r}")
        if not isinstance(streams, Iterable):
            raise TypeError(f"{type(user).__name__}.stream_infos has to return a list, not {streams!r}")
        self.streams = list(streams)
        if self.num_chunks < 1 or not self.streams:
            raise RuntimeError(
                f"{type(user).__name__}: needs at least one chunk and one stream; return them from num_chunks() and "
                "stream_infos()"
            )

    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """Call ``get_chunk`` and validate its result."""
        with self._lock:
            result = self._call("get_chunk", chunk_id=chunk)
        where = self._where(chunk)
        if not isinstance(result, Mapping):
            raise TypeError(f"{where} has to return {{name of a stream: data}}, not {result!r}")
        missing = [s.name for s in self.streams if s.name not in result]
        if missing:
            raise RuntimeError(f"{where}: has no data of the streams {missing}; return them as {{name: data}}")
        data = {
            info.name: as_sequences(info, result[info.name], f"{where}, stream '{info.name}'") for info in self.streams
        }
        counts = {name: ragged.num_sequences for name, ragged in data.items()}
        if len(set(counts.values())) > 1:
            raise RuntimeError(f"{where}: has to return as many sequences for each stream, but returns {counts}")
        return data

    def record_lengths(self, chunk: int, data: Mapping[str, Ragged]) -> None:
        """Keep the lengths of the sequences, and check that they are the same whenever the chunk is read."""
        known = self._known_lengths.get(chunk)
        super().record_lengths(chunk, data)
        if known is not None and not np.array_equal(known, self._known_lengths[chunk]):
            self._known_lengths[chunk] = known  # what was read ahead is read again, and has to fail again
            raise RuntimeError(
                f"{self._where(chunk)}: returns sequences of other lengths than before; a chunk has to stay the same"
            )

    def _call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the user. Errors: RuntimeError for whatever it raises, as in CNTK, which is its cause."""
        try:
            return getattr(self._user, method)(**arguments)
        except Exception as error:
            values = ", ".join(map(str, arguments.values()))
            name = f"{type(self._user).__name__}.{method}({values})"
            raise RuntimeError(f"{name} raised {type(error).__name__}: {error}") from error

    def _where(self, chunk: int) -> str:
        return f"{type(self._user).__name__}.get_chunk({chunk})"


def as_sequences(info: StreamInformation, data: Any, where: str) -> Ragged:
    """Convert a user's data of a stream.

    Errors: RuntimeError if samples don't have the shape of the stream, or there is no sequence.
    """
    if isinstance(data, (list, tuple)):
        sequences = [_sequence(info, item, where) for item in data]
        if not sequences:
            raise RuntimeError(f"{where}: is an empty list; at least one sequence is needed")
        return Ragged.from_sequences(sequences)
    rows = _rows(info, data, where)
    return Ragged(rows, np.ones(len(rows), np.int32))


def _sequence(info: StreamInformation, item: Any, where: str) -> np.ndarray | SparseRows:
    is_sample = not hasattr(item, "tocsr") and np.shape(item) == info.sample_shape
    return _rows(info, np.asarray(item)[None] if is_sample else item, where)


def _rows(info: StreamInformation, data: Any, where: str) -> np.ndarray | SparseRows:
    """Samples in the storage format of the stream."""
    if hasattr(data, "tocsr"):
        sparse = SparseRows.from_csr(data)
        _check_shape(info, (sparse.width,), (sample_size(info),), where)
        sparse = SparseRows(sparse.indptr, sparse.indices, sparse.values.astype(info.dtype), sparse.width)
        return sparse if info.is_sparse else sparse.to_dense().reshape(-1, *info.sample_shape)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ResultError(f"{where}: is no array of numbers: {error}") from error
    if not holds_numbers(array):
        raise ResultError(f"{where}: is no array of numbers, but of type {array.dtype}; convert it with astype")
    dense = array.astype(info.dtype, copy=False)
    _check_shape(info, dense.shape[1:], info.sample_shape, where)
    return SparseRows.from_dense(dense) if info.is_sparse else dense


def _check_shape(info: StreamInformation, shape: tuple[int, ...], expected: tuple[int, ...], where: str) -> None:
    if shape != expected:
        raise RuntimeError(
            f"{where}: samples have shape {shape}, but the stream has {info.sample_shape}; change the data or the "
            "StreamInformation"
        )
