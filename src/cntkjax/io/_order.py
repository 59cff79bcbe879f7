"""In which order the sequences of a deserializer come, shuffled or not.

The order of a seed is that of CNTK 2.7, told from what it delivered for files of numbered sequences. All its draws are
those of the 64 bit Mersenne Twister (see ``graph/mersenne.py``), taken modulo the number of choices.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, dropwhile, groupby, pairwise
from operator import itemgetter

import numpy as np

from ..engine.data.ragged import offsets_of
from ..graph.mersenne import MersenneTwister64
from ._streams import Deserializer, places_of, width

_TOGETHER = 2**24  # bytes of dense samples that are put in order together
_SPARSE = 64  # bytes that a sparse sample may have
_BITS = 32  # of a number of a place: a sequence that waits for its turn is the number position << 32 | place
_DRAWS = 1024  # made at once


@dataclass(frozen=True)
class Part:
    """Sequences that come one after the other. Shapes: int64 [sequences]."""

    position: np.ndarray  # of the chunk, among those of the sweep as they come
    place: np.ndarray  # in the chunk
    ends_sweep: bool


@dataclass(frozen=True)
class Unit:
    """As many of them as are read together, in an order. Shapes: int64 [sequences]."""

    position: np.ndarray
    chunk: np.ndarray
    place: np.ndarray
    samples: np.ndarray
    ends_sweep: bool


@dataclass(frozen=True)
class Order:
    """How sweeps go through the sequences. Nothing but the data and the sum of seed and sweep decides about an order.

    Shuffled, chunks come in a random order. A sequence of a file may come in the place of any other one whose chunk is
    within half a window before or behind. Chunks of users are taken together, as many as the window says, over the ends
    of sweeps, and those of the same sweep are shuffled.
    """

    deserializer: Deserializer
    randomize: bool = False
    window_in_chunks: int = 0
    window_in_samples: int = 0
    seed: int = 0

    def units(self, sweep: int) -> Iterator[Unit]:
        """From the beginning of a sweep on, without end. Only chunks in the window of a unit stay in memory."""
        for number, parts in self._sweeps(sweep):
            chunks = self._chunks(number)
            for part in parts:
                chunk = chunks[part.position]
                samples = self.deserializer.samples(chunk, part.place)
                cuts = np.flatnonzero(np.diff((np.cumsum(samples) - 1) // self._together)) + 1
                for first, end in pairwise([0, *cuts.tolist(), len(chunk)]):
                    these, is_last = slice(first, end), part.ends_sweep and end == len(chunk)
                    yield Unit(part.position[these], chunk[these], part.place[these], samples[these], is_last)

    @cached_property
    def samples(self) -> np.ndarray:
        """Of each chunk. Shapes: int64 [chunks]. May have to read all."""
        sizes = self.deserializer.sizes()
        return np.diff(offsets_of(self.deserializer.samples(*places_of(sizes)))[offsets_of(sizes)])

    @cached_property
    def _together(self) -> int:
        """Samples of a unit."""
        streams = self.deserializer.streams
        return max(_TOGETHER // sum(_SPARSE if s.is_sparse else width(s) * s.dtype.itemsize for s in streams), 1)

    def _sweeps(self, sweep: int) -> Iterator[tuple[int, Iterator[Part]]]:
        """From this one on: the number and the parts of each."""
        if self.randomize and self.deserializer.tumbles:
            windows = dropwhile(lambda window: window[0] < sweep, self._windows_of_users())
            for number, own in groupby(windows, itemgetter(0)):
                yield number, (self._shuffled(*window) for window in own)
        else:
            for number in count(sweep):
                yield number, self._rolling(number) if self.randomize else self._as_they_are()

    def _chunks(self, sweep: int) -> np.ndarray:
        """The chunks of a sweep as they come."""
        number = self.deserializer.num_chunks
        return _exchanged(_anywhere(number, self.seed + sweep)) if self.randomize else np.arange(number)

    def _as_they_are(self) -> Iterator[Part]:
        number, step = self.deserializer.num_chunks, 1 if self.deserializer.in_chunks else self._together
        return (self._whole(0, first, min(first + step, number)) for first in range(0, number, step))

    def _whole(self, sweep: int, first: int, end: int) -> Part:
        """Chunks without any change of their sequences."""
        chunks = self._chunks(sweep)[first:end].tolist()
        self.deserializer.hold(chunks)
        position, place = places_of(np.array([len(self.deserializer.lengths(chunk)) for chunk in chunks]))
        return Part(first + position, place, end == self.deserializer.num_chunks)

    # ---- files
    def _rolling(self, sweep: int) -> Iterator[Part]:
        """Each sequence in turn changes places with one anywhere in the window of its chunk, unless one of the two
        would leave the window of the chunk in whose place it comes: then another one is drawn.
        """
        chunks = self._chunks(sweep)
        own, place = places_of(self.deserializer.sizes()[chunks])
        first = np.searchsorted(own, np.arange(len(chunks) + 1))
        begins, ends = self._windows(chunks)
        low, high = ((border << _BITS).tolist() for border in (begins, ends))
        sequences = own << _BITS | place
        now, of = array("q"), array("q")  # which sequences come from here on, and the chunks in whose places they come
        known = array("q")
        draws = _draws(self.seed + sweep)
        turn = 0
        for chunk in range(len(chunks)):
            while turn < len(chunks) and begins[turn] == chunk:
                entering = slice(first[chunk] + len(now), first[ends[turn]])
                now.frombytes(sequences[entering].tobytes())
                of.frombytes(own[entering].tobytes())
                _take_turns(now, of, turn, range(*(first[turn : turn + 2] - first[chunk])), low, high, draws)
                turn += 1
            size = int(first[chunk + 1] - first[chunk])
            known += now[:size]
            del now[:size], of[:size]
            is_last = chunk + 1 == len(chunks)
            moves = is_last or begins[chunk] < begins[chunk + 1] or ends[chunk] < ends[chunk + 1]
            if is_last or len(known) >= self._together or (moves and self.deserializer.in_chunks):
                self.deserializer.hold(chunks[begins[chunk] : ends[chunk]].tolist())
                found = np.array(known, np.int64)
                yield Part(found >> _BITS, found & ((1 << _BITS) - 1), is_last)
                known = array("q")

    def _windows(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each position of a chunk, the first position in its window, and the one behind the last."""
        number = len(chunks)
        if self.window_in_chunks:
            begins = np.clip(np.arange(number) - self.window_in_chunks // 2, 0, max(number - self.window_in_chunks, 0))
            return begins, np.minimum(begins + self.window_in_chunks, number)
        starts = offsets_of(self.samples[chunks])
        half = self.window_in_samples // 2
        ends = np.searchsorted(starts, starts[:-1] + half) - 1  # of chunks that are in the window as a whole
        return np.searchsorted(starts, starts[:-1] - half), np.maximum(ends, np.arange(number) + 1)

    # ---- chunks of users
    def _windows_of_users(self) -> Iterator[tuple[int, int, int]]:
        """The windows, and the parts in each sweep of those over its end: sweep, first chunk, and the one behind."""
        filled = 0
        for sweep in count():
            first = 0
            for position, chunk in enumerate(self._chunks(sweep).tolist()):
                if filled >= (self.window_in_chunks or self.window_in_samples):
                    if position:
                        yield sweep, first, position
                    first, filled = position, 0
                filled += 1 if self.window_in_chunks else int(self.deserializer.lengths(chunk).sum())
            yield sweep, first, self.deserializer.num_chunks

    def _shuffled(self, sweep: int, first: int, end: int) -> Part:
        part = self._whole(sweep, first, end)
        order = _exchanged(_from_here_on(len(part.place), self.seed + sweep + first))
        return Part(part.position[order], part.place[order], part.ends_sweep)


def _anywhere(number: int, seed: int) -> np.ndarray:
    """A place for each of so many."""
    return (MersenneTwister64(seed).raw(number) % np.uint64(number)).astype(np.int64)


def _from_here_on(number: int, seed: int) -> np.ndarray:
    """A place for each of so many, not before its own."""
    left = np.arange(number, 0, -1)
    return number - left + (MersenneTwister64(seed).raw(number) % left.astype(np.uint64)).astype(np.int64)


def _exchanged(partners: np.ndarray) -> np.ndarray:
    """The numbers 0, 1, 2, ... after each place in turn has changed its number with its partner.

    Example:
        >>> _exchanged(np.array([1, 2, 2]))
        array([1, 2, 0])
    """
    now = array("q", range(len(partners)))
    for place, partner in enumerate(partners.tolist()):
        now[place], now[partner] = now[partner], now[place]
    return np.array(now, np.int64)


def _draws(seed: int) -> Iterator[int]:
    twister = MersenneTwister64(seed)
    while True:
        yield from twister.raw(_DRAWS).tolist()


def _take_turns(
    now: array, of: array, chunk: int, turns: range, low: list[int], high: list[int], draws: Iterator[int]
) -> None:
    """Exchanges the sequences at these places, all of one chunk, with others anywhere in ``now``.

    ``low`` and ``high`` are the first sequence in the window of each chunk, and the one behind the last.
    """
    number, lowest, highest = len(now), low[chunk], high[chunk]
    for place in turns:
        sequence = now[place]
        while True:
            partner = next(draws) % number
            other, its_chunk = now[partner], of[partner]
            if lowest <= other < highest and low[its_chunk] <= sequence < high[its_chunk]:
                break
        now[place], now[partner] = other, sequence
