"""Several deserializers as one: their sequences are matched by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from ..engine.data.ragged import Ragged, offsets_of
from ._streams import Deserializer, StreamInformation, places_of


class Joined(Deserializer):
    """The first deserializer gives the chunks and the order; a sequence that is not in all of the others is left out.

    Errors: RuntimeError if two streams have the same name, or no sequence is in all of them.
    """

    def __init__(self, parts: Sequence[Deserializer]) -> None:
        self._first, *rest = parts
        self._others = [_ByKey(part) for part in rest]
        streams = [info for part in parts for info in part.streams]
        for name in {info.name for info in streams if [i.name for i in streams].count(info.name) > 1}:
            raise RuntimeError(f"Two streams with the same name '{name}' have been found. Please rename the duplicate.")
        self.streams = [
            StreamInformation(s.name, i, s.storage_format, s.dtype, s.sample_shape, s.m_defines_mb_size)
            for i, s in enumerate(streams)
        ]
        self._defining = [p for p in parts if any(s.m_defines_mb_size for s in p.streams)]
        self.in_chunks, self.by_minibatch = self._first.in_chunks, any(part.by_minibatch for part in parts)
        keys, sizes = self._first.keys(), self._first.sizes()
        filled = all(part.num_chunks for part in rest)
        (kept,) = np.nonzero(np.all([other.has(keys) for other in self._others], axis=0)) if filled else (keys[:0],)
        if not len(kept):
            raise RuntimeError(
                f"The deserializers of the streams {', '.join(s.name for s in streams)} have no sequence in common: "
                "their sequence ids (for images: lines) do not match"
            )
        self._keys = keys[kept]
        chunk, self._place = (every[kept] for every in places_of(sizes))  # of the first deserializer
        self._chunks, self._sizes = np.unique(chunk, return_counts=True)  # those of which something is left
        self._before = offsets_of(self._sizes)
        self.num_chunks = len(self._chunks)

    def sizes(self) -> np.ndarray:
        return self._sizes

    def keys(self) -> np.ndarray:
        return self._keys

    def lengths(self, chunk: int) -> np.ndarray:
        place = np.arange(self._sizes[chunk])
        return self.samples(np.full(len(place), chunk), place)

    def samples(self, chunk: np.ndarray, place: np.ndarray) -> np.ndarray:
        number = self._before[chunk] + place
        samples = [
            other.samples(self._keys[number])
            for other in self._others
            if not self._defining or other.part in self._defining
        ]
        if not self._defining or self._first in self._defining:
            samples.append(self._first.samples(self._chunks[chunk], self._place[number]))
        return np.max(samples, axis=0)

    def hold(self, chunks: Iterable[int]) -> None:
        self._first.hold(self._chunks[list(chunks)].tolist())

    def take(self, chunk: np.ndarray, place: np.ndarray) -> Mapping[str, Ragged]:
        number = self._before[chunk] + place
        data = dict(self._first.take(self._chunks[chunk], self._place[number]))
        lengths = next(iter(data.values())).lengths
        for other in self._others:
            found = other.take(self._keys[number])
            data.update({n: _expanded(r, lengths) for n, r in found.items()} if other.part.expands else found)
        return data


def _expanded(ragged: Ragged, lengths: np.ndarray | None) -> Ragged:
    """One sample of each sequence, as often as another stream has samples."""
    if lengths is None:
        return ragged
    return Ragged(ragged.data[np.repeat(ragged.offsets[:-1], lengths)], lengths)


class _ByKey:
    """Finds sequences of a deserializer by key. Of several with the same key it is the first."""

    def __init__(self, part: Deserializer) -> None:
        self.part = part

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys in ascending order, and of each its chunk and its place there."""
        keys = self.part.keys()
        chunk, place = places_of(self.part.sizes())
        order = np.argsort(keys, kind="stable")
        return keys[order], chunk[order], place[order]

    def _find(self, keys: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self._sorted[0], keys), len(self._sorted[0]) - 1)

    def has(self, keys: np.ndarray) -> np.ndarray:
        return self._sorted[0][self._find(keys)] == keys

    def samples(self, keys: np.ndarray) -> np.ndarray:
        at = self._find(keys)
        return self.part.samples(self._sorted[1][at], self._sorted[2][at])

    def take(self, keys: np.ndarray) -> Mapping[str, Ragged]:
        at = self._find(keys)
        return self.part.take(self._sorted[1][at], self._sorted[2][at])
