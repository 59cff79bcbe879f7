"""Sources and deserializers that users write, and sources of data that are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ..variables import Record
from ._minibatch import MinibatchData
from ._streams import FULL_DATA_SWEEP, INFINITELY_REPEAT, Deserializer, Source, StreamInformation, share_of, width


class UserDeserializer:
    """Base of deserializers that are written in Python: override ``stream_infos``, ``num_chunks`` and ``get_chunk``.

    Example:
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
        """The streams, as a list of ``StreamInformation``."""
        raise NotImplementedError(f"{type(self).__name__} has to define stream_infos()")

    def num_chunks(self) -> int:
        """How many chunks there are."""
        raise NotImplementedError(f"{type(self).__name__} has to define num_chunks()")

    def get_chunk(self, chunk_id: int) -> Mapping[str, Any]:
        """The data of a chunk by name of the stream; in each the same number of sequences.

        An array or sparse matrix has a sequence of one sample in each row. A list has a sequence in each item: an array
        [steps, *shape], or a sparse matrix with a row for each step.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get_chunk(chunk_id)")


class UserChunks(Deserializer):
    """What a ``UserDeserializer`` gives, checked."""

    tumbles = True

    def __init__(self, user: UserDeserializer) -> None:
        self._user = user
        self._lock = Lock()  # users need not think of threads
        self.num_chunks = user.num_chunks()
        self.streams = list(user.stream_infos())
        if not self.num_chunks or not self.streams:
            raise RuntimeError(f"{type(user).__name__}: needs at least one chunk and one stream")

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        with self._lock:
            given = self._user.get_chunk(chunk_id=chunk)
        where = f"{type(self._user).__name__}.get_chunk({chunk})"
        missing = [s.name for s in self.streams if s.name not in given]
        if missing:
            raise RuntimeError(f"{where}: has no data of the streams {missing}")
        data = {
            info.name: sequences_of(info, given[info.name], f"{where}, stream '{info.name}'") for info in self.streams
        }
        counts = {name: ragged.num_sequences for name, ragged in data.items()}
        if len(set(counts.values())) > 1:
            raise RuntimeError(f"{where}: has to give as many sequences for each stream, but gives {counts}")
        known = self._known_lengths.get(chunk)
        self._keep_lengths(chunk, data)
        if known is not None and not np.array_equal(known, self._known_lengths[chunk]):
            raise RuntimeError(f"{where}: gives sequences of other lengths than before; a chunk has to stay the same")
        return data


def sequences_of(info: StreamInformation, data: Any, where: str) -> Ragged:
    """Data of a stream as users give them. Errors: RuntimeError if samples don't have the shape of the stream."""
    if isinstance(data, (list, tuple)):
        sequences = [_sequence(info, item, where) for item in data]
        if not sequences:
            raise RuntimeError(f"{where}: is an empty list")
        return Ragged.from_sequences(sequences)
    rows = _rows(info, data, where)
    return Ragged(rows, np.ones(len(rows), np.int32))


def _sequence(info: StreamInformation, item: Any, where: str) -> np.ndarray | SparseRows:
    one_sample = not hasattr(item, "tocsr") and np.shape(item) == info.sample_shape
    return _rows(info, np.asarray(item)[None] if one_sample else item, where)


def _rows(info: StreamInformation, data: Any, where: str) -> np.ndarray | SparseRows:
    sparse = hasattr(data, "tocsr")
    rows: Any = SparseRows.from_csr(data) if sparse else np.asarray(data, info.dtype)
    shape = (rows.width,) if sparse else rows.shape[1:]
    if shape != ((width(info),) if sparse else info.sample_shape):
        raise RuntimeError(f"{where}: samples have shape {shape}, but the stream has {info.sample_shape}")
    if sparse:
        rows = SparseRows(rows.indptr, rows.indices, rows.values.astype(info.dtype), rows.width)
    if info.is_sparse:
        return rows if sparse else SparseRows.from_dense(rows)
    return rows.to_dense().reshape(-1, *info.sample_shape) if sparse else rows


class UserMinibatchSource(Source):
    """Base of sources that are written in Python: override ``stream_infos`` and ``next_minibatch``.

    A source that can go on from a checkpoint also overrides ``get_checkpoint_state`` and ``restore_from_checkpoint``.
    """

    def next_minibatch(
        self, num_samples: int, number_of_workers: int, worker_rank: int, device: Any = None
    ) -> dict[StreamInformation, MinibatchData]:
        """The next minibatch by stream, of about so many samples, or the share of one worker; empty at the end."""
        raise NotImplementedError(f"{type(self).__name__} has to define next_minibatch(...)")

    def __getattr__(self, name: str) -> Any:
        if name != "streams":  # the streams by name: no property, so that a class may have something else under it
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Record(**{info.name: info for info in self.stream_infos()})

    def get_next_minibatch(self, *sizes_and_device: Any) -> dict[StreamInformation, MinibatchData]:
        return self.next_minibatch(*share_of(sizes_and_device))

    def is_infinite(self) -> bool:
        """Whether it never ends."""
        return False

    def get_checkpoint_state(self) -> dict[str, Any]:
        """What ``restore_from_checkpoint`` needs to go on from here."""
        return {}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Goes to where the source was when it gave this state."""


class MinibatchSourceFromData(UserMinibatchSource):
    """Minibatches of data in memory, in their order; the last one of a sweep may be smaller.

    Args:
        data_streams: name -> data. An array or sparse matrix has a sample in each row. A pair of data and type, such as
            ``(list_of_arrays, Sequence[Tensor[2]])``, may also be a list with an array or sparse matrix per sequence
        max_samples: ends after so many samples; ``FULL_DATA_SWEEP``: after one sweep

    Errors: ValueError if there is no stream; TypeError if streams differ in their number of samples or sequences, or a
        list comes without its type.

    Example:
        >>> source = MinibatchSourceFromData({"x": np.zeros((5, 2), np.float32)}, max_samples=FULL_DATA_SWEEP)
        >>> [source.next_minibatch(3)[source.streams.x].num_samples for _ in range(2)], source.next_minibatch(3)
        ([3, 2], {})
    """

    def __init__(self, data_streams: Mapping[str, Any], max_samples: int = INFINITELY_REPEAT) -> None:
        if not data_streams:
            raise ValueError("at least one stream must be specified, in the form name=data or name=(data, type)")
        self._infos, self._data = [], {}
        for i, (name, given) in enumerate(data_streams.items()):
            info, ragged = _in_memory(name, i, given)
            self._infos.append(info)
            self._data[info] = ragged
        counts = {info.name: ragged.num_sequences for info, ragged in self._data.items()}
        if len(set(counts.values())) > 1:
            raise TypeError(f"all data items must have the same first dimension, but they have {counts}")
        lengths = [np.diff(ragged.offsets) for ragged in self._data.values()]
        self._starts = np.concatenate([[0], np.cumsum(np.max(lengths, axis=0))])
        if self._starts[-1] == 0:
            raise ValueError("MinibatchSourceFromData: there are no samples")
        self._max_samples = int(self._starts[-1]) if max_samples == FULL_DATA_SWEEP else max_samples
        self._cursor = self._total = 0

    @property
    def num_samples(self) -> int:
        """Samples in one sweep."""
        return int(self._starts[-1])

    def stream_infos(self) -> list[StreamInformation]:
        return list(self._infos)

    def is_infinite(self) -> bool:
        return self._max_samples == INFINITELY_REPEAT

    def next_minibatch(
        self, num_samples: int, number_of_workers: int = 1, worker_rank: int = 0, device: Any = None
    ) -> dict[StreamInformation, MinibatchData]:
        left = self._max_samples - self._total
        if left <= 0:
            return {}
        begin = self._cursor
        fits = int(np.searchsorted(self._starts, self._starts[begin] + min(num_samples, left), "right")) - 1
        end = max(fits, begin + 1)
        self._total += int(self._starts[end] - self._starts[begin])
        self._cursor = end if end < len(self._starts) - 1 else 0
        sweep_end = self._cursor == 0 or self._total >= self._max_samples
        own = slice(begin, end) if number_of_workers == 1 else np.arange(begin + worker_rank, end, number_of_workers)
        return {info: MinibatchData.of(info, ragged.take(own), sweep_end) for info, ragged in self._data.items()}

    def get_checkpoint_state(self) -> dict[str, int]:
        return {"cursor": self._cursor, "total_num_samples": self._total}

    def restore_from_checkpoint(self, checkpoint: Mapping[str, int]) -> None:
        self._cursor, self._total = int(checkpoint["cursor"]), int(checkpoint["total_num_samples"])


def _in_memory(name: str, number: int, given: Any) -> tuple[StreamInformation, Ragged]:
    data, kind = given if isinstance(given, tuple) else (given, None)
    first = data[0] if isinstance(data, list) and data else data
    if kind is None and not hasattr(data, "shape"):
        raise TypeError(f"stream '{name}': a list needs a type, as in (list_of_arrays, Sequence[Tensor[2]])")
    sparse = hasattr(first, "tocsr") or bool(getattr(kind, "is_sparse", False))
    with_sequences = any(axis.is_sequence_axis for axis in getattr(kind, "dynamic_axes", ()))
    shape = tuple(kind.shape) if kind is not None else tuple(data.shape[1:])
    dtype = np.float64 if getattr(first, "dtype", None) == np.float64 else np.float32
    info = StreamInformation(name, number, "sparse" if sparse else "dense", dtype, shape)
    if isinstance(data, list) and not with_sequences:
        data = np.asarray(data, dtype)
    ragged = sequences_of(info, data, f"stream '{name}'")
    return info, ragged if with_sequences else Ragged(ragged.data, None)
