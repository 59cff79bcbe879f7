"""Truncated back-propagation through time: long sequences are cut into segments, spread over minibatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ._batcher import Batcher, PrefetchingBatcher, Shard


@dataclass
class _OpenSequence:
    """A sequence of which the first ``consumed`` samples were delivered; its length is that of the rest."""

    streams: list[np.ndarray | SparseRows]
    ends_sweep: bool
    consumed: int = 0

    def __len__(self) -> int:
        return len(self.streams[0]) - self.consumed


OpenSequences: TypeAlias = "list[list[tuple[_OpenSequence, int]]]"  # by slot, and how much of each is read


@dataclass
class _Segments:
    """The segments of a minibatch, slot by slot."""

    data: list[list[np.ndarray | SparseRows]]  # of each segment, by stream
    starts: list[bool]
    slots: list[int]
    sweep_ended: bool = False


class TruncatedBatcher:
    """Slots, each of which holds sequences end to end; a minibatch takes the next ``length`` samples of every slot.

    A slot is refilled when it has no more than one minibatch left, so that segments of several sequences may share it.

    Errors: RuntimeError if the streams of a sequence differ in length.
    """

    def __init__(self, batcher: Batcher | PrefetchingBatcher, names: Sequence[str], length: int) -> None:
        self._batcher, self._names, self._length = batcher, names, length
        self._slots: list[deque[_OpenSequence]] = []

    def open_sequences(self) -> OpenSequences:
        """The sequences in the slots, and how much of each is read, for `reopen`."""
        return [[(sequence, sequence.consumed) for sequence in slot] for slot in self._slots]

    def reopen(self, sequences: OpenSequences) -> None:
        """Go back to these sequences; it may be repeated."""
        for slot in sequences:
            for sequence, consumed in slot:
                sequence.consumed = consumed
        self._slots = [deque(sequence for sequence, _ in slot) for slot in sequences]

    def next_batch(self, slots: int, shard: Shard) -> tuple[dict[str, Ragged], bool]:
        """The next minibatch by stream, and whether the last sequence of a sweep ends in it; empty at the end."""
        self._slots += [deque() for _ in range(slots - len(self._slots))]
        for slot in self._slots[:slots]:
            while sum(map(len, slot)) <= self._length and self._refill(slot, shard):
                pass
        segments = self._take_segments()
        if not segments.data:
            return {}, False
        starts, places = np.array(segments.starts), np.array(segments.slots, np.int32)
        minibatch = {
            name: Ragged.from_sequences(rows)
            for name, rows in zip(self._names, zip(*segments.data, strict=True), strict=False)
        }
        return {name: Ragged(r.data, r.lengths, starts, places) for name, r in minibatch.items()}, segments.sweep_ended

    def _take_segments(self) -> _Segments:
        """Remove the next ``length`` samples from every slot."""
        segments = _Segments([], [], [])
        for index, slot in enumerate(self._slots):
            room = self._length
            while room and slot:
                sequence = slot[0]
                begin, end = sequence.consumed, sequence.consumed + min(room, len(sequence))
                segments.data.append([rows[begin:end] for rows in sequence.streams])
                segments.starts.append(begin == 0)
                segments.slots.append(index)
                sequence.consumed = end
                room -= end - begin
                if not len(sequence):
                    segments.sweep_ended |= slot.popleft().ends_sweep
        return segments

    def _refill(self, slot: deque[_OpenSequence], shard: Shard) -> bool:
        """Append the next sequence to a slot; False at the end of the data."""
        parts, sweep_ended = self._batcher.next_batch(1, shard)
        for part in parts:
            streams = [part.data[name].take(part.rows).data for name in self._names]
            lengths = dict(zip(self._names, map(len, streams), strict=True))
            if len(set(lengths.values())) > 1:
                raise RuntimeError(
                    "truncation_length: the streams of a sequence have to be of the same length to be cut into pieces, "
                    f"but they have {lengths} samples. Leave out truncation_length, or make them equally long"
                )
            slot.append(_OpenSequence(streams, sweep_ended))
        return bool(parts)
