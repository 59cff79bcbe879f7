"""The place that a source has reached in its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._order import Block, Data, Loader, Order, Share


@dataclass(frozen=True)
class Piece:
    """Some sequences: which ones of which data."""

    data: Data
    choice: slice | np.ndarray


class Cursor:
    """Goes through the sweeps of an order and takes whole sequences, as many as fit into a minibatch.

    ``sweep`` is the sweep of the next sequence, and ``position`` the number of samples before it, of all sweeps
    and all workers.
    """

    def __init__(self, order: Order, max_sweeps: int, max_samples: int, ahead: bool) -> None:
        self._order, self._max_sweeps = order, max_sweeps
        self._max_samples = min(max_samples, 2**62)  # within int64
        self._loader = Loader(order.deserializer, ahead)
        self._known: Block | None = None
        self._ahead_of: Block | None = None
        self.sweep = self._number = self._at = self._first_chunk = 0
        self._share: Share = (1, 0)
        self._begin_sweep(0)
        self._samples_before = self._sequences_before = 0

    @property
    def position(self) -> int:
        """Samples before the next sequence."""
        return self._samples_before + (int(self._block(self._share).starts[self._at]) if self._at else 0)

    @property
    def ended(self) -> bool:
        """Whether all sweeps are over, or the next sequence begins after the last sample that is wanted."""
        return self.sweep >= self._max_sweeps or self.position >= self._max_samples

    def take(self, budget: int, share: Share) -> tuple[list[Piece], bool]:
        """The next sequences of a worker, of ``budget`` samples at most but one sequence at least, across the ends of
        sweeps; and whether this went over the end of a sweep. Nothing at the end, or if the worker has no share of as
        many sweeps as there are workers: even of sweeps of one sequence it would have had one.
        """
        pieces: list[Piece] = []
        left, sweep_ended, fruitless = budget, False, 0
        while left > 0 and not self.ended and fruitless <= share[0]:
            block = self._block(share)
            data = self._loader.get(block.own_chunks, self.sweep)
            if block is not self._ahead_of:
                self._ahead_of = block
                self._expect_next(share)
            first = int(np.searchsorted(block.position, self._at))
            fits = np.searchsorted(block.cumulative, block.cumulative[first] + left, "right") - 1
            still_wanted = self._max_samples - self._samples_before
            wanted = np.searchsorted(block.own_starts, still_wanted)
            last = min(max(int(fits), first if pieces else first + 1), max(int(wanted), first))
            if last > first:
                pieces.append(Piece(data, block.choose(first, last)))
                left -= int(block.cumulative[last] - block.cumulative[first])
                fruitless = 0
            if left <= 0:
                self._at = int(block.position[last - 1]) + 1
            else:
                next_own = int(block.position[last]) if last < len(block.position) else len(block)
                self._at = min(next_own, int(np.searchsorted(block.starts, still_wanted)))
            if self._at < len(block):
                break
            if self._advance():
                sweep_ended = True
                fruitless += not pieces
        if self.ended:
            self._loader.forget()
        return pieces, sweep_ended

    def seek(self, position: int) -> None:
        """Goes to the first sequence with at least so many samples before it."""
        deserializer = self._order.deserializer
        lengths = [deserializer.lengths(chunk) for chunk in range(deserializer.num_chunks)]
        samples, sequences = sum(int(some.sum()) for some in lengths), sum(map(len, lengths))
        sweeps = min(position // samples, self._max_sweeps)
        self._begin_sweep(sweeps)
        self._samples_before, self._sequences_before = sweeps * samples, sweeps * sequences
        while not self.ended:
            block = self._block((1, 0))
            if self._samples_before + block.starts[-1] > position:
                self._at = int(np.searchsorted(block.starts, position - self._samples_before))
                if self._at < len(block):
                    return
            self._advance()
            if self._samples_before >= position:
                return

    def _begin_sweep(self, sweep: int) -> None:
        self.sweep, self._number, self._at, self._first_chunk = sweep, 0, 0, 0
        self._share = (1, 0)
        self._chunks = self._order.blocks(sweep)

    def _advance(self) -> bool:
        """To the next block; whether it belongs to another sweep."""
        block = self._block(self._share)
        self._samples_before += int(block.starts[-1])
        self._sequences_before += len(block)
        self._first_chunk += len(self._chunks[self._number])
        self._number, self._at = self._number + 1, 0
        if self._number < len(self._chunks):
            return False
        self._begin_sweep(self.sweep + 1)
        return True

    def _block(self, share: Share) -> Block:
        self._share = share
        if self._known is None or self._known.where != (self.sweep, self._number, share):
            chunks = self._chunks[self._number]
            self._known = Block(
                self._order, self.sweep, self._number, chunks, self._first_chunk, self._sequences_before, share
            )
        return self._known

    def _expect_next(self, share: Share) -> None:
        number, first = self._number + 1, self._first_chunk + len(self._chunks[self._number])
        if number < len(self._chunks):
            chunks, sweep = self._chunks[number], self.sweep
        elif self.sweep + 1 < self._max_sweeps:
            number, first, sweep = 0, 0, self.sweep + 1
            chunks = self._order.blocks(sweep)[0]
        else:
            return
        self._loader.expect(Block(self._order, sweep, number, chunks, first, 0, share).own_chunks, sweep)
