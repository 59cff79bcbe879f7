"""Several deserializers as one: their sequences are matched by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from cntkjax.engine.ragged import Ragged

from ._streams import Deserializer, StreamInformation

_KEPT = 4  # chunks of the deserializers behind the first that stay in memory


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
        self.num_chunks = self._first.num_chunks
        self.varies = any(part.varies for part in parts)
        filled = all(part.num_chunks for part in rest)
        if not filled or not any(len(self.keys(chunk)) for chunk in range(self.num_chunks)):
            raise RuntimeError(
                f"The deserializers of the streams {', '.join(s.name for s in streams)} have no sequence in common: "
                "their sequence ids (for images: lines) do not match"
            )

    def keys(self, chunk: int) -> np.ndarray:
        return self._first.keys(chunk)[self._in_all(chunk)]

    def lengths(self, chunk: int) -> np.ndarray:
        keys = self.keys(chunk)
        lengths = [other.lengths(keys) for other in self._others if not self._defining or other.part in self._defining]
        if not self._defining or self._first in self._defining:
            lengths.append(self._first.lengths(chunk)[self._in_all(chunk)])
        return np.max(lengths, axis=0)

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        return self.read_in(chunk, 0)

    def read_in(self, chunk: int, sweep: int) -> Mapping[str, Ragged]:
        keys, wanted = self.keys(chunk), np.flatnonzero(self._in_all(chunk))
        read = {name: ragged.take(wanted) for name, ragged in self._first.read_in(chunk, sweep).items()}
        lengths = next(iter(read.values())).lengths
        for other in self._others:
            found = other.read(keys, sweep)
            read.update({n: _expanded(r, lengths) for n, r in found.items()} if other.part.expands else found)
        return read

    def _in_all(self, chunk: int) -> np.ndarray:
        keys = self._first.keys(chunk)
        return np.all([other.has(keys) for other in self._others], axis=0)


def _expanded(ragged: Ragged, lengths: np.ndarray | None) -> Ragged:
    """One sample of each sequence, as often as another stream has samples."""
    if lengths is None:
        return ragged
    return Ragged(ragged.data[np.repeat(ragged.offsets[:-1], lengths)], lengths)


class _ByKey:
    """Finds sequences of a deserializer by key. Of several with the same key it is the first."""

    def __init__(self, part: Deserializer) -> None:
        self.part = part
        self._chunks: OrderedDict[tuple[int, int], Mapping[str, Ragged]] = OrderedDict()

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Keys in ascending order, and of each its chunk, its place there, and its length."""
        chunks = range(self.part.num_chunks)
        keys = [self.part.keys(chunk) for chunk in chunks]
        chunk = np.repeat(np.arange(len(keys)), [len(some) for some in keys])
        place = np.concatenate([np.arange(len(some)) for some in keys])
        lengths = np.concatenate([self.part.lengths(chunk) for chunk in chunks])
        every = np.concatenate(keys)
        order = np.argsort(every, kind="stable")
        return every[order], chunk[order], place[order], lengths[order]

    def _find(self, keys: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self._sorted[0], keys), len(self._sorted[0]) - 1)

    def has(self, keys: np.ndarray) -> np.ndarray:
        return self._sorted[0][self._find(keys)] == keys

    def lengths(self, keys: np.ndarray) -> np.ndarray:
        return self._sorted[3][self._find(keys)]

    def read(self, keys: np.ndarray, sweep: int) -> Mapping[str, Ragged]:
        at = self._find(keys)
        chunk, place = self._sorted[1][at], self._sorted[2][at]
        by_chunk = np.argsort(chunk, kind="stable")
        needed, firsts = (
            np.unique(chunk[by_chunk], return_index=True) if len(keys) else (np.zeros(1, int), np.zeros(1, int))
        )
        back = np.argsort(by_chunk, kind="stable")
        parts = [
            (self._chunk(int(c), sweep if self.part.varies else 0), place[which])
            for c, which in zip(needed, np.split(by_chunk, firsts[1:]), strict=True)
        ]
        return {
            s.name: Ragged.concatenate([data[s.name].take(places) for data, places in parts]).take(back)
            for s in self.part.streams
        }

    def _chunk(self, chunk: int, sweep: int) -> Mapping[str, Ragged]:
        if (chunk, sweep) not in self._chunks:
            self._chunks[chunk, sweep] = self.part.read_in(chunk, sweep)
            if len(self._chunks) > _KEPT:
                self._chunks.popitem(last=False)
        return self._chunks[chunk, sweep]
