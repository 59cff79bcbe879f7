"""The place that a source has reached in its data."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from ..engine.data.ragged import Ragged, offsets_of
from ._order import Order, Unit

Data = Mapping[str, Ragged]

Share = tuple[int, int]
"""Number of workers, and which of them this one is."""


@dataclass(frozen=True)
class Piece:
    """Some sequences: which ones of which data."""

    data: Data
    choice: slice


class Block:
    """A unit of an order, of which a worker has a share.

    Positions count the sequences of all workers; ``position`` has those of this one.
    """

    def __init__(self, order: Order, unit: Unit, first: int, share: Share) -> None:
        self.unit, self.share = unit, share
        self._deserializer = order.deserializer
        workers, rank = share
        # Shuffled, chunks are dealt out: a worker need not read those of others, and of a single chunk gets nothing.
        self.dealt = order.randomize
        turn = unit.position if self.dealt else first + np.arange(len(unit.place))
        self.position = np.flatnonzero(turn % workers == rank)
        self.starts = offsets_of(unit.samples)
        self._data: Data | None = None

    def __len__(self) -> int:
        return len(self.unit.place)

    @cached_property
    def own_starts(self) -> np.ndarray:
        """Samples of all workers before each sequence of this one."""
        return self.starts[self.position]

    @cached_property
    def cumulative(self) -> np.ndarray:
        """Samples of this worker before each of its sequences, and at the end all."""
        return offsets_of(self.unit.samples[self.position])

    @cached_property
    def own(self) -> np.ndarray:
        """Chunks and places of the sequences of this worker. Shapes: int64 [2, sequences]."""
        return np.stack([self.unit.chunk[self.position], self.unit.place[self.position]])

    def load(self) -> Data:
        """The sequences of this worker."""
        if self._data is None:
            self._data = self._deserializer.take(*self.own) if len(self.position) else {}
        return self._data


class Cursor:
    """Goes through the sweeps of an order and takes whole sequences, as many as fit into a minibatch.

    ``sweep`` is the sweep of the next sequence, and ``position`` the number of samples before it, of all sweeps
    and all workers. A second thread puts the next block in order, and reads the chunks that it needs.
    """

    def __init__(self, order: Order, max_sweeps: int, max_samples: int, ahead: bool) -> None:
        self._order, self._max_sweeps = order, max_sweeps
        self._max_samples = min(max_samples, 2**62)  # within int64
        self._by_minibatch = order.deserializer.by_minibatch
        ahead = ahead and order.deserializer.num_chunks > 1
        self._thread = ThreadPoolExecutor(1, "cntkjax-reader") if ahead else None
        self._coming: Future[Block] | None = None  # of the block behind this one
        self._block: Block | None = None
        self.sweep = self._samples_before = self._sequences_before = self._at = self._number = 0
        self._units = order.units(0)

    @property
    def position(self) -> int:
        """Samples before the next sequence."""
        return self._samples_before + (int(self._block.starts[self._at]) if self._block else 0)

    @property
    def ended(self) -> bool:
        """Whether all sweeps are over, or the next sequence begins after the last sample that is wanted."""
        return self.sweep >= self._max_sweeps or self.position >= self._max_samples

    def take(self, budget: int, share: Share) -> tuple[list[Piece], bool]:
        """The next sequences of a worker, of ``budget`` samples at most but one sequence at least, across the ends of
        sweeps; and whether this went over the end of a sweep. Nothing at the end, or if the worker has no share of as
        many sweeps as there are workers: even of sweeps of one sequence it would have had one.
        """
        pieces: list[tuple[Block, slice]] = []
        left, sweep_ended, fruitless = budget, False, 0
        while not self.ended and fruitless <= share[0]:
            block = self._next_block(share)
            first = int(np.searchsorted(block.position, self._at))
            fits = np.searchsorted(block.cumulative, block.cumulative[first] + left, "right") - 1
            still_wanted = self._max_samples - self._samples_before
            wanted = np.searchsorted(block.own_starts, still_wanted)
            last = min(max(int(fits), first if pieces else first + 1), max(int(wanted), first))
            if last > first:
                pieces.append((block, slice(first, last)))
                left -= int(block.cumulative[last] - block.cumulative[first])
                fruitless = 0
            if left <= 0 and not block.dealt:
                self._at = int(block.position[last - 1]) + 1
            else:
                next_own = int(block.position[last]) if last < len(block.position) else len(block)
                self._at = min(next_own, int(np.searchsorted(block.starts, still_wanted)))
            if self._at < len(block):
                break
            crossed = self._advance(block)
            sweep_ended |= crossed
            fruitless += crossed and not pieces
            # A worker that has its minibatch goes on to its next sequence in the sweep, if chunks are dealt out.
            if left <= 0 and (crossed or not block.dealt or share == (1, 0)):
                break
        data = self._read(pieces)
        if self.ended:
            self._forget()
        return data, sweep_ended

    def seek(self, position: int) -> None:
        """Goes to the first sequence with at least so many samples before it."""
        samples, sequences = int(self._order.samples.sum()), int(self._order.deserializer.sizes().sum())
        sweeps = min(position // samples, self._max_sweeps)
        self._begin(sweeps, sweeps * samples, sweeps * sequences)
        while not self.ended and self._samples_before < position:
            self._block = Block(self._order, next(self._units), self._sequences_before, (1, 0))
            self._at = int(np.searchsorted(self._block.starts, position - self._samples_before))
            if self._at < len(self._block):
                return
            self._advance(self._block)

    def _begin(self, sweep: int, samples: int, sequences: int) -> None:
        """Goes to the beginning of a sweep, before which so much has come."""
        self._forget()
        self.sweep, self._samples_before, self._sequences_before = sweep, samples, sequences
        self._block, self._at, self._number = None, 0, 0
        self._units = self._order.units(sweep)

    def _advance(self, block: Block) -> bool:
        """Behind a block; whether the sweep ended with it."""
        self._samples_before += int(block.starts[-1])
        self._sequences_before += len(block)
        self._block, self._at, self._number = None, 0, self._number + 1
        if block.unit.ends_sweep:
            self.sweep, self._number = self.sweep + 1, 0
        return block.unit.ends_sweep

    def _next_block(self, share: Share) -> Block:
        """The block that the next sequence is in, with its data; begins to read the one behind it."""
        if self._block is None:
            try:
                self._block = self._coming.result() if self._coming else self._new_block(self._sequences_before, share)
            except BaseException:
                self._settle()
                self._coming = None
                self._units = islice(self._order.units(self.sweep), self._number, None)
                raise
            self._coming = None
        if self._block.share != share:
            self._settle()
            self._block = Block(self._order, self._block.unit, self._sequences_before, share)
        block = self._block
        if self._by_minibatch:
            return block
        block.load()
        is_last = block.unit.ends_sweep and self.sweep + 1 >= self._max_sweeps
        if self._thread and not self._coming and not is_last:
            self._coming = self._thread.submit(self._new_block, self._sequences_before + len(block), share)
        return block

    def _new_block(self, sequences_before: int, share: Share) -> Block:
        block = Block(self._order, next(self._units), sequences_before, share)
        if not self._by_minibatch:
            block.load()
        return block

    def _read(self, parts: list[tuple[Block, slice]]) -> list[Piece]:
        """The data of a minibatch."""
        if not self._by_minibatch or not parts:
            return [Piece(block.load(), these) for block, these in parts]
        own = np.concatenate([block.own[:, these] for block, these in parts], axis=1)
        return [Piece(self._order.deserializer.take(*own), slice(0, own.shape[1]))]

    def _forget(self) -> None:
        """Frees the data, which will be read again if they are asked for."""
        self._settle()
        self._coming = None
        self._order.deserializer.hold(())
        if self._block:
            self._block = Block(self._order, self._block.unit, self._sequences_before, self._block.share)

    def _settle(self) -> None:
        """Waits for the other thread."""
        if self._coming:
            wait([self._coming])


class Ahead:
    """A cursor that in a second thread takes the next minibatch, as if one of the same size will be asked for."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.position = cursor.position
        self._thread = ThreadPoolExecutor(1, "cntkjax-reader")
        self._coming: Future[tuple[list[Piece], bool]] | None = None
        self._expected: tuple[int, Share] | None = None

    def take(self, budget: int, share: Share) -> tuple[list[Piece], bool]:
        """See ``Cursor``."""
        if self._coming and self._expected != (budget, share):
            self.seek(self.position)
        try:
            pieces, sweep_ended = (self._coming or self._thread.submit(self._cursor.take, budget, share)).result()
        except BaseException:
            self.seek(self.position)
            raise
        self.position, self._coming = self._cursor.position, None
        if pieces:
            self._expected = budget, share
            self._coming = self._thread.submit(self._cursor.take, budget, share)
        return pieces, sweep_ended

    def seek(self, position: int) -> None:
        """See ``Cursor``."""
        self._coming = None
        self._thread.submit(self._cursor.seek, position).result()
        self.position = self._cursor.position
