"""Truncated back-propagation through time: long sequences in pieces, spread over minibatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ._cursor import Ahead, Cursor, Share


@dataclass
class _Open:
    """A sequence of which the first ``done`` samples were delivered."""

    streams: list[np.ndarray | SparseRows]
    ends_sweep: bool
    done: int = 0

    def __len__(self) -> int:
        return len(self.streams[0]) - self.done


class Slots:
    """Rows that sequences stand in end to end; each minibatch takes the next ``length`` samples of every row.

    A row is filled up when it has no more than one minibatch left, so that pieces of several sequences may stand in it.

    Errors: RuntimeError if the streams of a sequence differ in length.
    """

    def __init__(self, cursor: Cursor | Ahead, names: Sequence[str], length: int) -> None:
        self._cursor, self._names, self._length = cursor, names, length
        self._slots: list[deque[_Open]] = []

    def take(self, slots: int, share: Share) -> tuple[dict[str, Ragged], bool]:
        """The next minibatch by stream, and whether the last sequence of a sweep ends in it; nothing at the end."""
        self._slots += [deque() for _ in range(slots - len(self._slots))]
        for slot in self._slots[:slots]:
            while sum(map(len, slot)) <= self._length and self._open(slot, share):
                pass
        pieces: list[list[np.ndarray | SparseRows]] = []
        starts, places, sweep_ended = [], [], False
        for place, slot in enumerate(self._slots):
            room = self._length
            while room and slot:
                sequence = slot[0]
                begin, end = sequence.done, sequence.done + min(room, len(sequence))
                pieces.append([rows[begin:end] for rows in sequence.streams])
                starts.append(begin == 0)
                places.append(place)
                sequence.done = end
                room -= end - begin
                if not len(sequence):
                    sweep_ended |= slot.popleft().ends_sweep
        if not pieces:
            return {}, False
        about = np.array(starts), np.array(places, np.int32)
        minibatch = {
            name: Ragged.from_sequences(rows)
            for name, rows in zip(self._names, zip(*pieces, strict=True), strict=False)
        }
        return {name: Ragged(r.data, r.lengths, *about) for name, r in minibatch.items()}, sweep_ended

    def _open(self, slot: deque[_Open], share: Share) -> bool:
        pieces, sweep_ended = self._cursor.take(1, share)
        for piece in pieces:
            streams = [piece.data[name].take(piece.choice).data for name in self._names]
            lengths = dict(zip(self._names, map(len, streams), strict=True))
            if len(set(lengths.values())) > 1:
                raise RuntimeError(
                    "truncation_length: the streams of a sequence have to be of the same length to be cut into pieces, "
                    f"but they have {lengths} samples"
                )
            slot.append(_Open(streams, sweep_ended))
        return bool(pieces)
