"""In which order the sequences of a deserializer come: sweeps, blocks of chunks, shuffling, shares of workers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cntkjax.engine.ragged import Ragged, offsets_of

from ._streams import Deserializer

Share = tuple[int, int]
"""Number of workers, and which of them this one is."""


@dataclass(frozen=True)
class Order:
    """How sweeps go through the chunks. A block is what is read, and shuffled, together.

    Without shuffling a block is one chunk. With it, the chunks are shuffled, a block is as many of them as the window
    says, and all sequences of a block are shuffled. The order depends on nothing but the sum of the seed and the
    number of the sweep, as in CNTK: the second sweep of seed 0 is the first of seed 1.
    """

    deserializer: Deserializer
    randomize: bool = False
    window_in_chunks: int = 0
    window_in_samples: int = 0
    seed: int = 0

    def blocks(self, sweep: int) -> list[np.ndarray]:
        """The chunks of each block of a sweep, as they come."""
        chunks = np.arange(self.deserializer.num_chunks)
        if not self.randomize:
            return list(chunks[:, None])
        np.random.default_rng(self.seed + sweep).shuffle(chunks)
        if self.window_in_chunks:
            return [chunks[i : i + self.window_in_chunks] for i in range(0, len(chunks), self.window_in_chunks)]
        samples = np.cumsum([self.deserializer.lengths(int(chunk)).sum() for chunk in chunks])
        window = np.minimum((samples - 1) // self.window_in_samples, samples // self.window_in_samples)
        return np.split(chunks, np.flatnonzero(np.diff(window)) + 1)

    def sequences(self, sweep: int, block: int, number: int) -> np.ndarray | None:
        """The order of the sequences of a block; None: as they are in the file."""
        return np.random.default_rng([self.seed + sweep, block]).permutation(number) if self.randomize else None


class Block:
    """The sequences of some chunks in their order, of which a worker has a share.

    Positions count the sequences of all workers; ``position`` has those of this one.
    """

    def __init__(
        self, order: Order, sweep: int, number: int, chunks: np.ndarray, first_chunk: int, first: int, share: Share
    ):
        self.where = sweep, number, share
        self.share, self._deserializer = share, order.deserializer
        workers, rank = share
        dealt = order.randomize and order.deserializer.num_chunks >= workers
        own_chunk = (first_chunk + np.arange(len(chunks))) % workers == rank if dealt else np.ones(len(chunks), bool)
        # Ascending, so that a block of all the data is the same set in every sweep and need not be read again.
        sort = np.argsort(chunks)
        self._chunks, own_chunk = chunks[sort], own_chunk[sort]
        self.own_chunks = tuple(int(c) for c in self._chunks[own_chunk])
        self._own_chunk, self._dealt, self._first = own_chunk, dealt, first
        self._order, self._sweep, self._number = order, sweep, number

    @cached_property
    def _in_file_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of all sequences, and whether their chunk belongs to this worker."""
        lengths = [self._deserializer.lengths(int(chunk)) for chunk in self._chunks]
        return np.concatenate(lengths), np.repeat(self._own_chunk, [len(some) for some in lengths])

    @cached_property
    def _sequences(self) -> np.ndarray | None:
        return self._order.sequences(self._sweep, self._number, len(self._in_file_order[0]))

    @cached_property
    def starts(self) -> np.ndarray:
        """Samples before each position, and at the end all. Shapes: int64 [sequences of all workers + 1]."""
        lengths, _ = self._in_file_order
        return offsets_of(lengths if self._sequences is None else lengths[self._sequences])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def position(self) -> np.ndarray:
        """Where the sequences of this worker are."""
        workers, rank = self.share
        if not self._dealt:
            return np.flatnonzero((self._first + np.arange(len(self))) % workers == rank)
        own = self._in_file_order[1]
        return np.flatnonzero(own if self._sequences is None else own[self._sequences])

    @cached_property
    def own_starts(self) -> np.ndarray:
        """Samples of all workers before each sequence of this one."""
        return self.starts[self.position]

    @cached_property
    def cumulative(self) -> np.ndarray:
        """Samples of this worker before each of its sequences, and at the end all."""
        return offsets_of(np.diff(self.starts)[self.position])

    def choose(self, first: int, last: int) -> slice | np.ndarray:
        """Which sequences of the data of ``own_chunks`` are the first to last of this worker."""
        positions = self.position[first:last]
        if self._sequences is not None:
            own = self._in_file_order[1]
            return (np.cumsum(own) - 1)[self._sequences[positions]] if self._dealt else self._sequences[positions]
        return slice(first, last) if self.share == (1, 0) else positions


Data = Mapping[str, Ragged]


class Loader:
    """Reads the chunks of a block, and in a second thread those of the block that comes after it."""

    def __init__(self, deserializer: Deserializer, ahead: bool) -> None:
        self._deserializer = deserializer
        self._thread = ThreadPoolExecutor(1, "cntkjax-reader") if ahead and deserializer.num_chunks > 1 else None
        self._known: tuple[tuple[int, ...], int] | None = None
        self._data: Data = {}
        self._coming: tuple[tuple[tuple[int, ...], int], Future[Data]] | None = None

    def get(self, chunks: tuple[int, ...], sweep: int) -> Data:
        """The data of the chunks by stream."""
        wanted = self._version(chunks, sweep)
        if wanted != self._known:
            coming, self._coming = self._coming, None
            self._known, self._data = None, {}
            self._data = coming[1].result() if coming and coming[0] == wanted else self._read(*wanted)
            self._known = wanted
        return self._data

    def expect(self, chunks: tuple[int, ...], sweep: int) -> None:
        """Says which chunks will be asked for next."""
        wanted = self._version(chunks, sweep)
        if self._thread and chunks and wanted != self._known and self._coming is None:
            self._coming = wanted, self._thread.submit(self._read, *wanted)

    def _version(self, chunks: tuple[int, ...], sweep: int) -> tuple[tuple[int, ...], int]:
        return chunks, sweep if self._deserializer.varies else 0

    def forget(self) -> None:
        """Frees the data, which will be read again if they are asked for."""
        self._known, self._data, self._coming = None, {}, None

    def _read(self, chunks: tuple[int, ...], sweep: int) -> Data:
        read = [dict(self._deserializer.read_in(chunk, sweep)) for chunk in chunks]
        return (
            {s.name: Ragged.concatenate([data.pop(s.name) for data in read]) for s in self._deserializer.streams}
            if read
            else {}
        )
