"""Minibatch sources that users write in Python, and the source of data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._typing import Count
from ..device import DeviceDescriptor
from ..engine.data.ragged import Ragged
from ..graph.arguments import public
from ..graph.shape import is_unknown
from ..variables import Record
from ._base_source import BaseSource, parse_request
from ._minibatch_data import Minibatch, MinibatchData
from ._streams import FULL_DATA_SWEEP, INFINITELY_REPEAT, StreamInformation
from ._user_deserializer import as_sequences


@public
class UserMinibatchSource(BaseSource):
    """Base class of minibatch sources in Python: override ``stream_infos`` and ``next_minibatch``.

    A source that can resume from a checkpoint also overrides ``get_checkpoint_state`` and ``restore_from_checkpoint``.

    >>> class Zeros(UserMinibatchSource):
    ...     def stream_infos(self):
    ...         return [StreamInformation("x", 0, "dense", np.float32, (2,))]
    ...     def next_minibatch(self, num_samples, number_of_workers=1, worker_rank=0, device=None):
    ...         from cntkjax import Value
    ...         data = Value(np.zeros((num_samples, 2), np.float32))
    ...         return {self.streams.x: MinibatchData(data, num_samples, num_samples, sweep_end=False)}
    >>> source = Zeros()
    >>> source.next_minibatch(3)[source.streams.x].shape
    (3, 2)
    """

    def next_minibatch(
        self, num_samples: int, number_of_workers: int, worker_rank: int,
        device: DeviceDescriptor | None = None,
    ) -> dict[StreamInformation, MinibatchData]:
        """Return the next minibatch, by stream; empty at the end of the data.

        Args:
            num_samples: approximate size of the minibatch of all workers
            number_of_workers: number of workers that share the minibatch
            worker_rank: rank of this worker
            device: where the data will be used
        """
        raise NotImplementedError(f"{type(self).__name__} has to define next_minibatch(...)")

    def __getattr__(self, name: str) -> Any:
        if name != "streams":  # not a property, so that a subclass may assign the attribute
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Record(**{info.name: info for info in self.stream_infos()})

    def get_next_minibatch(self, *sizes_and_device: int | DeviceDescriptor) -> dict[StreamInformation, MinibatchData]:
        """Return the next minibatch, with the arguments of CNTK's compiled module (see ``BaseSource``)."""
        return self.next_minibatch(*parse_request(sizes_and_device))

    def is_infinite(self) -> bool:
        """Whether the source never ends."""
        return False

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position in the data, for ``restore_from_checkpoint``."""
        return {}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Resume from the position at which ``get_checkpoint_state`` was called."""


@public
class MinibatchSourceFromData(UserMinibatchSource):
    """Reads minibatches from data in memory, in order; the last one of a sweep may be smaller.

    Args:
        data_streams: name -> data. An array or sparse matrix has a sample in each row. In a pair of data and type, such
            as ``(list_of_arrays, Sequence[Tensor[2]])``, data may also be a list with an array or sparse matrix for
            each sequence; the type ``tensor`` in place of ``Tensor[2]`` leaves the shape of a sample to the data
        max_samples: the source ends after this many samples; ``FULL_DATA_SWEEP``: after one sweep

    Errors: ValueError if there is no stream or no sample; TypeError if streams differ in their number of samples or
        sequences, or for a list without a type.

    >>> source = MinibatchSourceFromData({"x": np.zeros((5, 2), np.float32)}, max_samples=FULL_DATA_SWEEP)
    >>> [source.next_minibatch(3)[source.streams.x].num_samples for _ in range(2)], source.next_minibatch(3)
    ([3, 2], {})
    """

    def __init__(self, data_streams: Mapping[str, Any], max_samples: int = INFINITELY_REPEAT) -> None:
        if not data_streams:
            raise ValueError("at least one stream must be specified, as in {name: data} or {name: (data, type)}")
        self._infos, self._data = [], {}
        for i, (name, stream) in enumerate(data_streams.items()):
            data, kind = stream if isinstance(stream, tuple) else (stream, None)
            info, ragged = _in_memory_stream(name, i, data, kind)
            self._infos.append(info)
            self._data[info] = ragged
        counts = {info.name: ragged.num_sequences for info, ragged in self._data.items()}
        if len(set(counts.values())) > 1:
            raise TypeError(f"all data items must have the same first dimension, but they have {counts}")
        lengths = [np.diff(ragged.offsets) for ragged in self._data.values()]
        self._starts = np.concatenate([[0], np.cumsum(np.max(lengths, axis=0))])
        if self._starts[-1] == 0:
            raise ValueError("MinibatchSourceFromData: there are no samples; pass arrays with at least one row")
        self._max_samples = int(self._starts[-1]) if max_samples == FULL_DATA_SWEEP else max_samples
        self._cursor = self._total = 0

    @property
    def num_samples(self) -> int:
        """Number of samples in one sweep."""
        return int(self._starts[-1])

    @property
    def num_sequences(self) -> int:
        """Number of sequences in one sweep; of samples, if there are no sequences."""
        return len(self._starts) - 1

    def stream_infos(self) -> list[StreamInformation]:
        """All streams of the source."""
        return list(self._infos)

    def is_infinite(self) -> bool:
        """Whether the source never ends."""
        return self._max_samples == INFINITELY_REPEAT

    def next_minibatch(
        self,
        num_samples: int,
        number_of_workers: Count = 1,
        worker_rank: int = 0,
        device: DeviceDescriptor | None = None,
    ) -> dict[StreamInformation, MinibatchData]:
        """Read the next minibatch, by stream; empty at the end of the data. Workers take sequences in turns.

        There is at least one sequence, unless ``num_samples`` is 0.
        """
        remaining = self._max_samples - self._total
        if remaining <= 0:
            return Minibatch()
        begin = self._cursor
        fitting = int(np.searchsorted(self._starts, self._starts[begin] + min(num_samples, remaining), "right")) - 1
        end = max(fitting, begin + 1) if num_samples > 0 else begin
        self._total += int(self._starts[end] - self._starts[begin])
        self._cursor = end if end < len(self._starts) - 1 else 0
        sweep_end = end > begin and (self._cursor == 0 or self._total >= self._max_samples)
        rows = slice(begin, end) if number_of_workers == 1 else np.arange(begin + worker_rank, end, number_of_workers)
        return Minibatch({
            info: MinibatchData.from_ragged(info, ragged.take(rows), sweep_end) for info, ragged in self._data.items()
        })

    def get_checkpoint_state(self) -> dict[str, int]:
        """The position in the data, for ``restore_from_checkpoint`` of a source with the same data."""
        return {"cursor": self._cursor, "total_num_samples": self._total}

    def restore_from_checkpoint(self, checkpoint: Mapping[str, int]) -> None:
        """Resume from the position at which ``get_checkpoint_state`` was called."""
        self._cursor, self._total = int(checkpoint["cursor"]), int(checkpoint["total_num_samples"])


def _in_memory_stream(name: str, number: int, data: Any, kind: Any) -> tuple[StreamInformation, Ragged]:
    """A stream and its data; ``kind`` is a type such as ``Sequence[Tensor[2]]``, or None."""
    if kind is None and not hasattr(data, "shape"):
        raise TypeError(f"stream '{name}': a list needs a type, as in (list_of_arrays, Sequence[Tensor[2]])")
    has_sequences = any(axis.is_sequence_axis for axis in getattr(kind, "dynamic_axes", ()))
    has_shape = kind is not None and not is_unknown(tuple(kind.shape))
    if has_sequences and not has_shape and isinstance(data, np.ndarray):
        data = list(data)  # each row is a sequence, and its entries are the samples
    first = data[0] if isinstance(data, list) and data else data
    is_sparse = hasattr(first, "tocsr") or bool(getattr(kind, "is_sparse", False))
    shape = tuple(kind.shape) if has_shape else np.shape(first)[1:]
    dtype = np.float64 if getattr(first, "dtype", None) == np.float64 else np.float32
    info = StreamInformation(name, number, "sparse" if is_sparse else "dense", dtype, shape)
    if isinstance(data, list) and not has_sequences:
        data = np.asarray(data)
    ragged = as_sequences(info, data, f"stream '{name}'")
    return info, ragged if has_sequences else Ragged(ragged.data, None)
