"""Groups the sequences of a sampler into minibatches, and keeps the position in the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from .._best_effort import BestEffort
from ..engine.data.ragged import Ragged, offsets_of
from ..engine.xla.background import Background
from ._sampler import Sampler, SequenceBlock

Streams = Mapping[str, Ragged]

_UNLIMITED = 2**62  # samples or sweeps, within int64
_BLOCK_AHEAD = BestEffort("read the next block of a source ahead", "it is read when it is needed")
_MINIBATCH_AHEAD = BestEffort("read the next minibatch of a source ahead", "it is read when it is needed")

Shard = tuple[int, int]
"""Number of workers, and the rank of this one."""


@dataclass(frozen=True)
class BlockPart:
    """Some sequences of a block: all data of the block, and which rows of it."""

    data: Streams
    rows: slice


class BlockShard:
    """The share of one worker in a block.

    Places count the sequences of all workers, from the start of the block; ``places`` are those of this worker.
    """

    def __init__(self, sampler: Sampler, block: SequenceBlock, first_sequence: int, shard: Shard) -> None:
        self.block, self.shard = block, shard
        self._deserializer = sampler.deserializer
        workers, rank = shard
        # If shuffled, whole chunks are distributed: a worker need not read those of others, and of a single chunk gets
        # nothing unless its rank is 0.
        self.distributes_chunks = sampler.randomize
        turns = block.positions if self.distributes_chunks else first_sequence + np.arange(len(block.indices))
        self.places = np.flatnonzero(turns % workers == rank)
        self.starts = offsets_of(block.num_samples)
        self._data: Streams | None = None

    def __len__(self) -> int:
        """Number of sequences of all workers."""
        return len(self.block.indices)

    @cached_property
    def starts_of_worker(self) -> np.ndarray:
        """Samples of all workers before each sequence of this one. Shapes: int64 [sequences]."""
        return self.starts[self.places]

    @cached_property
    def cumulative_samples(self) -> np.ndarray:
        """Samples of this worker before each of its sequences, and in total. Shapes: int64 [sequences + 1]."""
        return offsets_of(self.block.num_samples[self.places])

    @cached_property
    def sequences(self) -> np.ndarray:
        """Chunks and indices of the sequences of this worker. Shapes: int64 [2, sequences]."""
        return np.stack([self.block.chunks[self.places], self.block.indices[self.places]])

    def load(self) -> Streams:
        """Read the sequences of this worker, once."""
        if self._data is None:
            self._data = self._deserializer.take(*self.sequences) if len(self.places) else {}
        return self._data


class Batcher:
    """Iterates over the sweeps of a sampler in minibatches of whole sequences.

    ``sweep`` is the sweep of the next sequence, and ``position`` the number of samples before it, of all sweeps
    and all workers. With ``prefetch``, a second thread orders and reads the next block.
    """

    def __init__(self, sampler: Sampler, max_sweeps: int, max_samples: int, prefetch: bool) -> None:
        self._sampler, self._max_sweeps = sampler, max_sweeps
        self._max_samples = min(max_samples, _UNLIMITED)
        self._end: tuple[int, int] | None = None  # samples and sweeps before the end of an epoch
        self._reads_per_minibatch = sampler.deserializer.reads_per_minibatch
        prefetch = prefetch and sampler.deserializer.num_chunks > 1
        self._thread = Background("cntkjax-reader") if prefetch else None
        self._prefetched: Future[BlockShard | None] | None = None  # the block after this one
        self._block: BlockShard | None = None
        self.sweep = self._samples_before = self._sequences_before = self._place = self._block_number = 0
        self._blocks = sampler.blocks(0)

    @property
    def position(self) -> int:
        """Samples before the next sequence."""
        return self._samples_before + (int(self._block.starts[self._place]) if self._block else 0)

    @property
    def ended(self) -> bool:
        """Whether all sweeps are over, or the next sequence begins after the maximum number of samples."""
        samples, sweeps = self._end or (_UNLIMITED, _UNLIMITED)
        return self.sweep >= min(self._max_sweeps, sweeps) or self.position >= min(self._max_samples, samples)

    @property
    def _last_sample(self) -> int:
        return min(self._max_samples, self._end[0]) if self._end else self._max_samples

    def end_at(self, samples: int | None, sweeps: int | None) -> None:
        """End here as well, until it is called again, and end minibatches with each sweep, unless both are None."""
        is_epoch = samples is not None or sweeps is not None
        self._end = (samples or _UNLIMITED, sweeps or _UNLIMITED) if is_epoch else None

    def next_batch(self, max_samples: int, shard: Shard) -> tuple[list[BlockPart], bool]:
        """The next sequences of a worker, and whether they cross the end of a sweep.

        There are ``max_samples`` samples at most but at least one sequence, possibly of several sweeps. The batch is
        empty at the end, or if the worker has no share of as many sweeps as there are workers: even of sweeps of one
        sequence it would have had one.
        """
        parts: list[tuple[BlockShard, slice]] = []
        remaining, sweep_ended, sweeps_without_share = max_samples, False, 0
        while not self.ended and sweeps_without_share <= shard[0]:
            block = self._current_block(shard)
            rows = self._fitting_rows(block, remaining, is_first=not parts)
            if rows.stop > rows.start:
                parts.append((block, rows))
                remaining -= int(block.cumulative_samples[rows.stop] - block.cumulative_samples[rows.start])
                sweeps_without_share = 0
            self._place = self._place_after(block, rows.stop, is_full=remaining <= 0)
            if self._place < len(block):
                break
            crossed = self._advance(block)
            sweep_ended |= crossed
            sweeps_without_share += crossed and not parts
            # A worker whose minibatch is full moves on to its next sequence in the sweep, if chunks are distributed.
            if remaining <= 0 and (crossed or not block.distributes_chunks or shard == (1, 0)):
                break
            if crossed and self._end and parts:
                break
        data = self._read(parts)
        if self.sweep >= self._max_sweeps or self.position >= self._max_samples:
            self._release()
        return data, sweep_ended

    def _fitting_rows(self, block: BlockShard, remaining: int, is_first: bool) -> slice:
        """The sequences of the worker, from the current place on, that fit into a minibatch: at least one if it is the
        first of the minibatch, but none that begins after the maximum number of samples.
        """
        first = int(np.searchsorted(block.places, self._place))
        fitting = np.searchsorted(block.cumulative_samples, block.cumulative_samples[first] + remaining, "right") - 1
        allowed = np.searchsorted(block.starts_of_worker, self._last_sample - self._samples_before)
        return slice(first, min(max(int(fitting), first + 1 if is_first else first), max(int(allowed), first)))

    def _place_after(self, block: BlockShard, end: int, is_full: bool) -> int:
        """Where the next minibatch begins, after the sequences of the worker before ``end``."""
        if is_full and not block.distributes_chunks:
            return int(block.places[end - 1]) + 1
        next_place = int(block.places[end]) if end < len(block.places) else len(block)
        return min(next_place, int(np.searchsorted(block.starts, self._last_sample - self._samples_before)))

    def seek(self, position: int) -> None:
        """Move to the first sequence with at least this many samples before it."""
        samples = int(self._sampler.samples_per_chunk.sum())
        sequences = int(self._sampler.deserializer.chunk_sizes().sum())
        sweeps = min(position // samples, self._max_sweeps)
        if self._thread:
            self._thread.submit(int).result()  # an interrupt may have left a block that is still being read
        self._start_sweep(sweeps, sweeps * samples, sweeps * sequences)
        while not self.ended and self._samples_before < position:
            self._block = BlockShard(self._sampler, next(self._blocks), self._sequences_before, (1, 0))
            self._place = int(np.searchsorted(self._block.starts, position - self._samples_before))
            if self._place < len(self._block):
                return
            self._advance(self._block)

    def _start_sweep(self, sweep: int, samples: int, sequences: int) -> None:
        """Move to the start of a sweep, with this many samples and sequences before it."""
        self._release()
        self.sweep, self._samples_before, self._sequences_before = sweep, samples, sequences
        self._block, self._place, self._block_number = None, 0, 0
        self._blocks = self._sampler.blocks(sweep)

    def _advance(self, block: BlockShard) -> bool:
        """Move past a block; whether the sweep ended with it."""
        self._samples_before += int(block.starts[-1])
        self._sequences_before += len(block)
        self._block, self._place, self._block_number = None, 0, self._block_number + 1
        if block.block.ends_sweep:
            self.sweep, self._block_number = self.sweep + 1, 0
        return block.block.ends_sweep

    def _current_block(self, shard: Shard) -> BlockShard:
        """The loaded block of the next sequence; starts to prefetch the one after it."""
        if self._block is None:
            try:
                self._block = self._prefetched.result() if self._prefetched else None
                if self._block is None:
                    if self._prefetched:
                        self._repeat_blocks()
                    self._block = self._next_block(self._blocks, self._sequences_before, shard)
            except BaseException:
                self._wait()
                self._prefetched = None
                self._repeat_blocks()
                raise
            self._prefetched = None
        if self._block.shard != shard:
            self._wait()
            self._block = BlockShard(self._sampler, self._block.block, self._sequences_before, shard)
        block = self._block
        if self._reads_per_minibatch:
            return block
        block.load()
        is_last = block.block.ends_sweep and self.sweep + 1 >= self._max_sweeps
        if self._thread and not self._prefetched and not is_last:
            self._prefetched = self._thread.submit(
                _BLOCK_AHEAD.attempt, self._next_block, self._blocks, self._sequences_before + len(block), shard
            )
        return block

    def _repeat_blocks(self) -> None:
        """Begin again at the current block, which an interrupted or failed attempt may have taken."""
        self._blocks = islice(self._sampler.blocks(self.sweep), self._block_number, None)

    def _next_block(self, blocks: Iterator[SequenceBlock], sequences_before: int, shard: Shard) -> BlockShard:
        block = BlockShard(self._sampler, next(blocks), sequences_before, shard)
        if not self._reads_per_minibatch:
            block.load()
        return block

    def _read(self, parts: list[tuple[BlockShard, slice]]) -> list[BlockPart]:
        """The data of a minibatch."""
        if not self._reads_per_minibatch or not parts:
            return [BlockPart(block.load(), rows) for block, rows in parts]
        sequences = np.concatenate([block.sequences[:, rows] for block, rows in parts], axis=1)
        return [BlockPart(self._sampler.deserializer.take(*sequences), slice(0, sequences.shape[1]))]

    def _release(self) -> None:
        """Free the data; they are read again if they are needed."""
        self._wait()
        self._prefetched = None
        self._sampler.deserializer.retain(())
        if self._block:
            self._block = BlockShard(self._sampler, self._block.block, self._sequences_before, self._block.shard)

    def _wait(self) -> None:
        """Wait for the prefetching thread."""
        if self._prefetched:
            wait([self._prefetched])


class PrefetchingBatcher:
    """Wraps a batcher: a second thread prepares the next minibatch, assuming the same size and shard."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self.position = batcher.position
        self._thread = Background("cntkjax-reader")
        self._prefetched: Future[tuple[list[BlockPart], bool] | None] | None = None
        self._expected: tuple[int, Shard] | None = None

    @property
    def ended(self) -> bool:
        """See ``Batcher.ended``."""
        return not self._prefetched and self._batcher.ended

    def next_batch(self, max_samples: int, shard: Shard) -> tuple[list[BlockPart], bool]:
        """See ``Batcher.next_batch``."""
        if self._prefetched and self._expected != (max_samples, shard):
            self.seek(self.position)
        try:
            batch = self._prefetched.result() if self._prefetched else None
            if batch is None:
                if self._prefetched:
                    self.seek(self.position)
                batch = self._thread.submit(self._batcher.next_batch, max_samples, shard).result()
            parts, sweep_ended = batch
        except BaseException:
            self.seek(self.position)
            raise
        self.position, self._prefetched = self._batcher.position, None
        if parts and not self._batcher.ended:
            self._expected = max_samples, shard
            self._prefetched = self._thread.submit(
                _MINIBATCH_AHEAD.attempt, self._batcher.next_batch, max_samples, shard
            )
        return parts, sweep_ended

    def end_at(self, samples: int | None, sweeps: int | None) -> None:
        """See ``Batcher.end_at``."""
        self._thread.submit(self._batcher.end_at, samples, sweeps).result()
        if self._prefetched:
            self.seek(self.position)

    def seek(self, position: int) -> None:
        """See ``Batcher.seek``."""
        self._prefetched = None
        self._thread.submit(self._batcher.seek, position).result()
        self.position = self._batcher.position
