"""The order in which the sequences of a deserializer are read, shuffled or not.

The order that a seed yields is that of CNTK 2.7, inferred from its output for files of numbered sequences. All random
numbers are those of the 64-bit Mersenne Twister (see ``graph/mersenne.py``), modulo the number of choices.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, dropwhile, groupby
from operator import itemgetter

import numpy as np

from ..engine.data.ragged import offsets_of
from ..graph.mersenne import MersenneTwister64
from ._streams import sample_size
from .deserializer import Deserializer, enumerate_sequences

_BLOCK_BYTES = 2**22  # of dense samples in a block
_BLOCK_WITHOUT_DATA = 256  # sequences in a block, if their data are read with each minibatch
_SPARSE_SAMPLE_BYTES = 512  # estimate of the size of a sparse sample
_FIRST_BLOCK = 16  # the first block of a sweep is this many times smaller
_SEGMENT = 2**16  # sequences that are ordered at once, of a window as large as the data
_INDEX_BITS = 32  # a sequence is packed into one integer: chunk position << 32 | index in the chunk


@dataclass(frozen=True)
class Segment:
    """Consecutive sequences of a sweep. Shapes: int64 [sequences]."""

    positions: np.ndarray  # of the chunk, in the chunk order of the sweep
    indices: np.ndarray  # in the chunk
    ends_sweep: bool


@dataclass(frozen=True)
class SequenceBlock:
    """Consecutive sequences that are read together, in this order. Shapes: int64 [sequences]."""

    positions: np.ndarray  # of the chunk, in the chunk order of the sweep
    chunks: np.ndarray
    indices: np.ndarray  # in the chunk
    num_samples: np.ndarray
    ends_sweep: bool


@dataclass(frozen=True)
class Sampler:
    """The order of the sequences in each sweep. It depends only on the data and the sum of seed and sweep.

    If shuffled, chunks come in a random order. By default the randomization window slides: a sequence may swap places
    with any other whose chunk is at most half a window before or after its own. With tumbling windows, successive
    groups of chunks are shuffled, each as large as the window; a window may extend over the end of a sweep, but only
    sequences of the same sweep are shuffled together.

    Units: the window is in chunks or in samples; the other size is 0.
    """

    deserializer: Deserializer
    randomize: bool = False
    window_in_chunks: int = 0
    window_in_samples: int = 0
    seed: int = 0

    def blocks(self, sweep: int) -> Iterator[SequenceBlock]:
        """Blocks from the start of a sweep on, without end. Only chunks in the window of a block stay in memory.

        Errors: RuntimeError for a sweep without samples.
        """
        for number, segments in self._sweeps(sweep):
            chunk_order, samples_of_sweep = self._chunk_order(number), 0
            for segment in segments:
                chunks = chunk_order[segment.positions]
                samples = self.deserializer.num_samples(chunks, segment.indices)
                cuts = self._cuts(samples, samples_of_sweep)
                samples_of_sweep += int(samples.sum())
                if segment.ends_sweep and not samples_of_sweep:  # minibatches would never be full
                    raise RuntimeError(no_data(self.deserializer))
                for begin, end in cuts:
                    rows, is_last = slice(begin, end), segment.ends_sweep and end == len(chunks)
                    where = segment.positions[rows], chunks[rows], segment.indices[rows]
                    yield SequenceBlock(*where, samples[rows], is_last)

    def _cuts(self, samples: np.ndarray, before: int) -> list[tuple[int, int]]:
        """Cut sequences with this many samples into blocks: small ones at the start of a sweep, to be ready soon.

        Shapes: samples int64 [sequences]; ``before`` is the number of samples in the sweep before them.
        """
        starts, end = offsets_of(samples), 0
        cuts: list[tuple[int, int]] = []
        while end < len(samples) or not cuts:
            begin = end
            size = max(before + int(starts[begin]), self._samples_per_block // _FIRST_BLOCK, 1)
            size = min(size, self._samples_per_block)
            end = max(int(np.searchsorted(starts, starts[begin] + size, "right")) - 1, begin + 1)
            cuts.append((begin, min(end, len(samples))))
        return cuts

    @cached_property
    def samples_per_chunk(self) -> np.ndarray:
        """Number of samples in each chunk; may have to read all chunks. Shapes: int64 [chunks].

        Errors: RuntimeError if there are no samples at all.
        """
        sizes = self.deserializer.chunk_sizes()
        samples = np.diff(offsets_of(self.deserializer.num_samples(*enumerate_sequences(sizes)))[offsets_of(sizes)])
        if not samples.any():
            raise RuntimeError(no_data(self.deserializer))
        return samples

    @cached_property
    def _samples_per_block(self) -> int:
        if self.deserializer.reads_per_minibatch:
            return _BLOCK_WITHOUT_DATA
        streams = self.deserializer.streams
        sizes = (_SPARSE_SAMPLE_BYTES if s.is_sparse else sample_size(s) * s.dtype.itemsize for s in streams)
        return max(_BLOCK_BYTES // sum(sizes), 1)

    def _sweeps(self, sweep: int) -> Iterator[tuple[int, Iterator[Segment]]]:
        """Sweeps from this one on: the number and the segments of each."""
        if self.randomize and self.deserializer.tumbling_windows:
            windows = dropwhile(lambda window: window[0] < sweep, self._tumbling_windows())
            for number, windows_of_sweep in groupby(windows, itemgetter(0)):
                yield number, (self._shuffled_window(*window) for window in windows_of_sweep)
        else:
            for number in count(sweep):
                yield number, self._sliding_shuffle(number) if self.randomize else self._sequential()

    def _chunk_order(self, sweep: int) -> np.ndarray:
        """The chunks in the order of a sweep. Shapes: int64 [chunks]."""
        number = self.deserializer.num_chunks
        return _permutation(_uniform_swaps(number, self.seed + sweep)) if self.randomize else np.arange(number)

    def _sequential(self) -> Iterator[Segment]:
        number = self.deserializer.num_chunks
        step = 1 if self.deserializer.reads_whole_chunks else self._samples_per_block
        return (self._whole_chunks(0, first, min(first + step, number)) for first in range(0, number, step))

    def _whole_chunks(self, sweep: int, first: int, end: int) -> Segment:
        """The sequences of chunks, unshuffled."""
        chunks = self._chunk_order(sweep)[first:end].tolist()
        self.deserializer.retain(chunks)
        sizes = np.array([len(self.deserializer.sequence_lengths(chunk)) for chunk in chunks])
        position, indices = enumerate_sequences(sizes)
        return Segment(first + position, indices, end == self.deserializer.num_chunks)

    # ---- sliding windows
    def _sliding_shuffle(self, sweep: int) -> Iterator[Segment]:
        """Swap each sequence in turn with a random one in the window of its chunk, unless one of the two would leave
        the window of the chunk whose place it takes: then another one is drawn.
        """
        chunks = self._chunk_order(sweep)
        sizes = self.deserializer.chunk_sizes()[chunks]
        windows = self._sliding_windows(chunks)
        low, high = ((bound << _INDEX_BITS).tolist() for bound in windows)
        buffer = _ShuffleBuffer(low, high, MersenneTwister64(self.seed + sweep))
        first, begins, ends = (a.tolist() for a in (offsets_of(sizes), *windows))  # NumPy's numbers are slow
        ready = array("q")
        turn = entered = 0
        for chunk in range(len(chunks)):
            while turn < len(chunks) and begins[turn] == chunk:
                buffer.extend(entered, sizes[entered : ends[turn]])
                entered = max(entered, ends[turn])
                buffer.shuffle(turn, range(first[turn] - first[chunk], first[turn + 1] - first[chunk]))
                turn += 1
            ready += buffer.pop(first[chunk + 1] - first[chunk])
            is_last = chunk + 1 == len(chunks)
            window_moves = is_last or begins[chunk] < begins[chunk + 1] or ends[chunk] < ends[chunk + 1]
            flush = window_moves and self.deserializer.reads_whole_chunks
            if is_last or len(ready) >= self._samples_per_block or flush:
                self.deserializer.retain(chunks[begins[chunk] : ends[chunk]].tolist())
                yield from _segments(np.frombuffer(ready, np.int64), is_last)
                ready = array("q")

    def _sliding_windows(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and end position of the window around each chunk position. Shapes: int64 [chunks] each."""
        number = len(chunks)
        if self.window_in_chunks:
            begins = np.clip(np.arange(number) - self.window_in_chunks // 2, 0, max(number - self.window_in_chunks, 0))
            return begins, np.minimum(begins + self.window_in_chunks, number)
        starts = offsets_of(self.samples_per_chunk[chunks])
        half = self.window_in_samples // 2
        ends = np.searchsorted(starts, starts[:-1] + half) - 1  # of chunks that are in the window as a whole
        return np.searchsorted(starts, starts[:-1] - half), np.maximum(ends, np.arange(number) + 1)

    # ---- tumbling windows
    def _tumbling_windows(self) -> Iterator[tuple[int, int, int]]:
        """Sweep, first chunk position and end of each window; a window over the end of a sweep comes in two parts."""
        filled = 0
        for sweep in count():
            first = 0
            for position, chunk in enumerate(self._chunk_order(sweep).tolist()):
                if filled >= (self.window_in_chunks or self.window_in_samples):
                    if position:
                        yield sweep, first, position
                    first, filled = position, 0
                filled += 1 if self.window_in_chunks else int(self.deserializer.sequence_lengths(chunk).sum())
            yield sweep, first, self.deserializer.num_chunks

    def _shuffled_window(self, sweep: int, first: int, end: int) -> Segment:
        segment = self._whole_chunks(sweep, first, end)
        order = _permutation(_fisher_yates_swaps(len(segment.indices), self.seed + sweep + first))
        return Segment(segment.positions[order], segment.indices[order], segment.ends_sweep)


def _segments(packed: np.ndarray, is_last: bool) -> Iterator[Segment]:
    """Sequences as segments of limited size, of which several arrays are made. Shapes: packed int64 [sequences]."""
    for begin in range(0, max(len(packed), 1), _SEGMENT):
        part, ends = packed[begin : begin + _SEGMENT], begin + _SEGMENT >= len(packed)
        yield Segment(part >> _INDEX_BITS, part & ((1 << _INDEX_BITS) - 1), is_last and ends)


class _ShuffleBuffer:
    """The sequences in the sliding window.

    Args:
        low, high: first sequence in the window of each chunk position, and the end of the window, both packed
        twister: source of random numbers
    """

    def __init__(self, low: list[int], high: list[int], twister: MersenneTwister64) -> None:
        self._low, self._high, self._twister = low, high, twister
        self._sequences, self._positions = array("q"), array("q")  # position: of the chunk whose place it is

    def extend(self, first: int, sizes: np.ndarray) -> None:
        """Append the sequences of chunks that enter the window, from a position on. Shapes: sizes int64 [chunks]."""
        for position, size in enumerate(sizes.tolist(), first):
            packed = position << _INDEX_BITS
            self._positions.extend(array("q", [position]) * size)
            self._sequences.frombytes(np.arange(packed, packed + size).data.cast("B"))

    def pop(self, size: int) -> array:
        """Remove and return the first sequences."""
        popped = self._sequences[:size]
        del self._sequences[:size], self._positions[:size]
        return popped

    def shuffle(self, position: int, places: range) -> None:
        """Swap the sequences at these places, all of one chunk position, with random ones of the buffer."""
        sequences, positions, low, high = self._sequences, self._positions, self._low, self._high
        size, lowest, highest = np.uint64(len(sequences)), low[position], high[position]
        place = places.start
        while place < places.stop:  # a partner outside of the window is replaced by the next random number
            for partner in (self._twister.raw(places.stop - place) % size).tolist():
                sequence, other, other_position = sequences[place], sequences[partner], positions[partner]
                if lowest <= other < highest and low[other_position] <= sequence < high[other_position]:
                    sequences[place], sequences[partner] = other, sequence
                    place += 1


def no_data(deserializer: Deserializer) -> str:
    """The error message for a deserializer without sequences, or only with empty ones."""
    streams = ", ".join(info.name for info in deserializer.streams)
    return (
        f"{deserializer.path or 'MinibatchSource'}: expected samples of the streams {streams}, but there are none; "
        "check that this is the right file, and that it was written completely"
    )


def _uniform_swaps(number: int, seed: int) -> np.ndarray:
    """A random partner for each of this many places. Shapes: int64 [number]."""
    return (MersenneTwister64(seed).raw(number) % np.uint64(number)).astype(np.int64)


def _fisher_yates_swaps(number: int, seed: int) -> np.ndarray:
    """A random partner for each of this many places, at or after the place itself. Shapes: int64 [number]."""
    choices = np.arange(number, 0, -1)
    return number - choices + (MersenneTwister64(seed).raw(number) % choices.astype(np.uint64)).astype(np.int64)


def _permutation(partners: np.ndarray) -> np.ndarray:
    """The numbers 0, 1, 2, ... after each place in turn was swapped with its partner.

    >>> _permutation(np.array([1, 2, 2]))
    array([1, 2, 0])
    """
    permutation = array("q", range(len(partners)))
    for place, partner in enumerate(partners.tolist()):
        permutation[place], permutation[partner] = permutation[partner], permutation[place]
    return np.array(permutation, np.int64)
