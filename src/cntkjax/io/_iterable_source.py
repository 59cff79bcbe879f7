"""Minibatches from whatever Python can iterate over."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from .._typing import Count, Shape
from ..device import DeviceDescriptor
from ..engine.data.ragged import Ragged, SparseRows
from ..graph.arguments import public
from ._ahead import END, FailedItem, ItemsAhead
from ._iterables import Item, passes_over
from ._minibatch_data import Minibatch, MinibatchData
from ._streams import FULL_DATA_SWEEP, INFINITELY_REPEAT, StreamInformation, sample_size
from ._user_deserializer import as_sequences
from ._user_source import UserMinibatchSource

if TYPE_CHECKING:
    from ..graph.variable import Edge

StreamType: TypeAlias = "Edge | Shape | int | Any"
"""What a stream holds: a variable, a type such as ``Sequence[Tensor[2]]``, or the shape of a dense sample."""


_EMPTY = "from_iterable: a sweep through the data has no items; expected at least one"


@public
def from_iterable(
    data: Iterable[Any] | Callable[[], Iterable[Any]] | str | os.PathLike[str],
    streams: Mapping[str, StreamType] | None = None,
    max_samples: Count = INFINITELY_REPEAT,
    max_sweeps: Count = INFINITELY_REPEAT,
    batched: bool | None = None,
) -> IterableSource:
    """A minibatch source of data that Python code provides. CNTK has no such function.

    Each item is a sample or a sequence: a dict {name: value}, or a tuple with the values in the order of ``streams``.
    Values are numbers, arrays, tensors of other frameworks on the CPU, or SciPy matrices with a row for each step. A
    whole number for a sparse stream, or for a dense one with several elements, is a class: it becomes a one-hot vector.

    Args:
        data: an iterable; a function that returns one; a data set with ``__getitem__`` and ``__len__`` (of PyTorch or
            Hugging Face); a DataLoader; a frame of pandas; or the path of a Parquet file. A function is called for
            each sweep; an iterator, such as a generator, has one sweep
        streams: name -> what it holds: a variable, a type such as ``Sequence[Tensor[2]]``, or the shape of a dense
            sample; other values of the items are not used. Without it, all values of the first item are streams of
            dense samples of its shape
        max_samples: the source ends after this many samples; ``FULL_DATA_SWEEP``: after one sweep
        max_sweeps: the source ends after this many sweeps
        batched: whether an item is a batch, arrays [batch, ...]; by default that of a DataLoader

    The items are read by a second thread, ahead of their use. A checkpoint holds the position in the sweep. Data sets,
    frames and Parquet files begin there; otherwise the items before it are skipped, so iterating again has to give the
    same items in the same order.

    Errors: TypeError for data that cannot be iterated over, or tuples without ``streams``; RuntimeError, when the
        minibatch is read, for values that don't fit their stream, sweeps without items, and generators that would have
        to go back. Errors of the data themselves come with the minibatch that needs the item.

    >>> from cntkjax.layers.typing import Sequence, SparseTensor, Tensor
    >>> def queries():
    ...     for length in (2, 3, 1):
    ...         yield {"words": list(range(length)), "intent": length % 2}
    >>> source = from_iterable(queries, {"words": Sequence[SparseTensor[10]], "intent": 2}, max_sweeps=1)
    >>> minibatch = source.next_minibatch(5)
    >>> minibatch[source.streams.words], minibatch[source.streams.intent].asarray().tolist()
    (MinibatchData(data=Value([2 x 3 x 10], CPU), samples=5, seqs=2), [[1.0, 0.0], [0.0, 1.0]])
    >>> source.next_minibatch(5)[source.streams.words].end_of_sweep, source.next_minibatch(5)
    (True, {})
    """
    return IterableSource(data, streams, max_samples, max_sweeps, batched)


class _Position(NamedTuple):
    """Where the next minibatch begins: the sweep, the item in it, the samples before, and the next items."""

    sweep: int
    item: int
    samples: int
    buffer: deque[Any]


@public
class IterableSource(UserMinibatchSource):
    """See ``from_iterable``.

    >>> import cntkjax as C
    >>> isinstance(C.io.from_iterable([{'x': [1, 2]}]), IterableSource)
    True
    """

    def __init__(
        self,
        data: Any,
        streams: Mapping[str, StreamType] | None = None,
        max_samples: int = INFINITELY_REPEAT,
        max_sweeps: int = INFINITELY_REPEAT,
        batched: bool | None = None,
    ) -> None:
        self._passes = passes_over(data, batched)
        if max_samples == FULL_DATA_SWEEP:
            max_samples, max_sweeps = INFINITELY_REPEAT, 1
        self._max_samples = max_samples
        self._max_sweeps = max_sweeps if self._passes.is_repeatable else 1
        self._reading = threading.RLock()  # threads take turns
        self._at = _Position(0, 0, 0, deque())
        self._ahead = self._items_ahead()
        if streams is None:
            streams = _inferred(self._peek(0))
        self._streams = [_StreamConverter(name, i, kind) for i, (name, kind) in enumerate(streams.items())]
        if not self._streams:
            raise TypeError("from_iterable: at least one stream is needed, as in {'x': 3, 'y': C.input_variable(2)}")

    def _items_ahead(self) -> ItemsAhead:
        passes, (sweep, item, *_), last = self._passes, self._at, self._max_sweeps

        def items() -> Iterable[Any]:
            first = item
            for _ in range(sweep, last):
                yield from passes.items(first)
                yield END
                first = 0

        return ItemsAhead(items)

    def stream_infos(self) -> list[StreamInformation]:
        """All streams of the source."""
        return [stream.info for stream in self._streams]

    def is_infinite(self) -> bool:
        """Whether the source never ends."""
        return self._max_samples == self._max_sweeps == INFINITELY_REPEAT

    def next_minibatch(
        self,
        num_samples: int,
        number_of_workers: int = 1,
        worker_rank: int = 0,
        device: DeviceDescriptor | None = None,
    ) -> dict[StreamInformation, MinibatchData]:
        """Read the next minibatch, by stream; empty at the end of the data. Workers take items in turns.

        Errors: ValueError for a size that is not positive, or a rank outside of the workers; see ``from_iterable``.
        """
        if num_samples <= 0 or not 0 <= worker_rank < number_of_workers:
            raise ValueError(
                f"next_minibatch: {num_samples} samples for worker {worker_rank} of {number_of_workers}; give a size "
                "above 0 and a rank below the number of workers"
            )
        with self._reading:
            sweep, item, samples, buffer = self._at
            if sweep >= self._max_sweeps or samples >= self._max_samples:
                return Minibatch()
            count, more = self._fitting(min(num_samples, self._max_samples - samples))
            ends = self._peek(count) is END
            first = (worker_rank - item) % number_of_workers
            items = [self._as_item(buffer[i]) for i in range(first, count, number_of_workers)]
            sweep_end = ends or samples + more >= self._max_samples
            minibatch = Minibatch({stream.info: stream.minibatch(items, sweep_end) for stream in self._streams})
            self._ahead.expect(count)
            rest = deque(islice(buffer, count + ends, None))
            sweep, item = (sweep + 1, 0) if ends else (sweep, item + count)
            self._at = _Position(sweep, item, samples + more, rest)  # an interrupt comes before or after it
        return minibatch

    def _fitting(self, num_samples: int) -> tuple[int, int]:
        """How many items fit into a minibatch, one at least, and how many samples they have."""
        count = samples = 0
        while samples < num_samples and (item := self._peek(count)) is not END:
            if isinstance(item, FailedItem):
                if count:  # what was before the failure can be used
                    break
                raise item.error
            more = max(stream.steps(self._as_item(item)) for stream in self._streams)
            if count and samples + more > num_samples:
                break
            count, samples = count + 1, samples + more
        if not count:
            raise RuntimeError(_EMPTY)
        return count, samples

    def _peek(self, index: int) -> Any:
        """An item after the current position, or END."""
        buffer = self._at.buffer
        while len(buffer) <= index:
            self._ahead.move(buffer)
        return buffer[index]

    def _as_item(self, item: Any) -> Item:
        if isinstance(item, Mapping):
            return item
        values = item if isinstance(item, (tuple, list)) else (item,)
        if len(values) != len(self._streams):
            raise RuntimeError(
                f"from_iterable: an item has {len(values)} values, but there are {len(self._streams)} streams "
                f"({', '.join(s.info.name for s in self._streams)}); name the streams in the order of the values"
            )
        return {stream.info.name: value for stream, value in zip(self._streams, values, strict=True)}

    def get_checkpoint_state(self) -> dict[str, int]:
        """The position in the data, for ``restore_from_checkpoint`` of a source of the same data."""
        sweep, item, samples, _ = self._at
        return {"sweep": sweep, "item": item, "samples": samples}

    def restore_from_checkpoint(self, checkpoint: Mapping[str, int]) -> None:
        """Resume from the position at which ``get_checkpoint_state`` was called.

        Errors: RuntimeError for a generator that is beyond the position; it cannot go back.
        """
        sweep, item, samples = (int(checkpoint[key]) for key in ("sweep", "item", "samples"))
        with self._reading:
            if not self._passes.is_repeatable and self._at[:2] <= (sweep, item):
                self._skip(item - self._at.item)  # what was read ahead cannot be read again
                self._at = _Position(sweep, item, samples, self._at.buffer)
                return
            self._ahead.stop()
            self._at = _Position(sweep, item, samples, deque())
            self._ahead = self._items_ahead()

    def _skip(self, items: int) -> None:
        for _ in range(items):
            if self._peek(0) is END:
                raise RuntimeError(
                    "from_iterable: the data end before the position of the checkpoint; pass the data that it was "
                    "made with"
                )
            self._at.buffer.popleft()


def _inferred(item: Any) -> dict[str, StreamType]:
    """Streams of dense samples, of the shapes in the first item."""
    if isinstance(item, FailedItem):
        raise item.error
    if item is END:
        raise RuntimeError(_EMPTY)
    if not isinstance(item, Mapping):
        raise TypeError(
            f"from_iterable: an item is a {type(item).__name__}, whose values have no names; name the streams in their "
            "order, as in streams={'x': 784, 'y': 10}"
        )
    return {name: np.shape(value) or (1,) for name, value in item.items()}


class _StreamConverter:
    """Converts the values of a stream."""

    def __init__(self, name: str, number: int, kind: StreamType) -> None:
        declared: Any = getattr(kind, "shape", kind)
        shape = (declared,) if isinstance(declared, (int, np.integer)) else tuple(declared)
        dtype = np.float64 if getattr(kind, "dtype", None) == np.float64 else np.float32
        storage = "sparse" if getattr(kind, "is_sparse", False) else "dense"
        self.info = StreamInformation(name, number, storage, dtype, shape)
        self._where = f"from_iterable: stream '{name}'"
        axes = getattr(kind, "dynamic_axes", ())
        self._has_sequences = any(axis.is_sequence_axis for axis in axes)

    def steps(self, item: Item) -> int:
        """The number of samples in the value of an item. Errors: RuntimeError if the item lacks the stream."""
        if self.info.name not in item:
            raise RuntimeError(f"{self._where}: an item has no such value; its values are {', '.join(item)}")
        if not self._has_sequences:
            return 1
        value = item[self.info.name]
        return value.shape[0] if hasattr(value, "shape") else len(value)

    def minibatch(self, items: Sequence[Item], sweep_end: bool) -> MinibatchData:
        """The values of items. Errors: RuntimeError for a value that doesn't fit the stream."""
        values = [item[self.info.name] for item in items]
        data = self._ragged(values) if values else Ragged(self._none(), np.zeros(0, np.int32))
        ragged = data if self._has_sequences else Ragged(data.data, None)
        return MinibatchData.from_ragged(self.info, ragged, sweep_end)

    def _ragged(self, values: Sequence[Any]) -> Ragged:
        arrays = [value if hasattr(value, "tocsr") else np.asarray(value) for value in values]
        first = arrays[0]
        is_class = first.ndim == int(self._has_sequences) and first.dtype.kind in "iu" and not hasattr(first, "tocsr")
        if is_class and sample_size(self.info) > 1:
            return self._one_hot(arrays)
        if sample_size(self.info) == 1 and not hasattr(first, "tocsr"):
            arrays = [array.reshape(-1, *self.info.sample_shape) for array in arrays]
        return as_sequences(self.info, [a if self._has_sequences else self._sample(a) for a in arrays], self._where)

    def _sample(self, value: Any) -> Any:
        """The only step of a sequence."""
        return value if hasattr(value, "tocsr") or value.shape[1:] == self.info.sample_shape else value[None]

    def _one_hot(self, classes: Sequence[np.ndarray]) -> Ragged:
        lengths = np.array([array.size for array in classes], np.int32)
        indices, size = np.concatenate([array.reshape(-1) for array in classes]), sample_size(self.info)
        if len(indices) and not 0 <= indices.min() <= indices.max() < size:
            raise RuntimeError(f"{self._where}: class {indices.max()} is not one of 0 to {size - 1}; correct the data")
        ones = np.ones(len(indices), self.info.dtype)
        rows = SparseRows(np.arange(len(indices) + 1), indices.astype(np.int32), ones, size)
        return Ragged(rows if self.info.is_sparse else rows.to_dense().reshape(-1, *self.info.sample_shape), lengths)

    def _none(self) -> np.ndarray | SparseRows:
        empty = np.zeros((0, *self.info.sample_shape), self.info.dtype)
        return SparseRows.from_dense(empty) if self.info.is_sparse else empty


__all__ = ["IterableSource", "from_iterable"]
