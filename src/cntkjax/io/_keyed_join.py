"""Joins several deserializers: their sequences are matched by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from ..engine.data.ragged import Ragged, offsets_of
from ._streams import StreamInformation
from .deserializer import ChunkedDeserializer, Deserializer, enumerate_sequences


class JoinedDeserializer(ChunkedDeserializer):
    """The inner join of deserializers by the keys of their sequences.

    The first deserializer defines the chunks and the order; sequences that another one lacks are skipped.

    Errors: RuntimeError if two streams have the same name, or no sequence is in all deserializers.
    """

    def __init__(self, deserializers: Sequence[Deserializer]) -> None:
        self._first, *others = deserializers
        self.path = ", ".join(deserializer.path for deserializer in deserializers if deserializer.path)
        keys, *other_keys = _comparable([deserializer.sequence_keys() for deserializer in deserializers])
        self._others = [_KeyIndex(*pair) for pair in zip(others, other_keys, strict=True)]
        self.streams = _numbered([info for deserializer in deserializers for info in deserializer.streams])
        self._defining = [d for d in deserializers if any(s.m_defines_mb_size for s in d.streams)]
        self.reads_whole_chunks = self._first.reads_whole_chunks
        self.reads_per_minibatch = any(deserializer.reads_per_minibatch for deserializer in deserializers)
        kept = self._common(keys, others)
        self._keys = keys[kept]
        # Chunks and indices are those of the first deserializer; chunks without any common sequence are dropped.
        chunks, indices = enumerate_sequences(self._first.chunk_sizes())
        self._indices = indices[kept]
        self._chunks, self._sizes = np.unique(chunks[kept], return_counts=True)
        self._sequences_before = offsets_of(self._sizes)
        self.num_chunks = len(self._chunks)

    def _common(self, keys: np.ndarray, others: Sequence[Deserializer]) -> np.ndarray:
        """The sequences of the first deserializer, given by their keys, that are in all others."""
        is_common = all(other.chunk_sizes().any() for other in others) and np.all(
            [index.contains(keys) for index in self._others], axis=0
        )
        common = np.flatnonzero(np.broadcast_to(is_common, len(keys)))
        if not len(common):
            raise RuntimeError(
                f"The deserializers of the streams {', '.join(s.name for s in self.streams)} have no sequence in "
                "common: their sequence ids (for images: lines) do not match. Give sequences that belong together the "
                "same id in all files"
            )
        return common

    def chunk_sizes(self) -> np.ndarray:
        """Number of common sequences in each chunk. Shapes: int64 [chunks]."""
        return self._sizes

    def sequence_keys(self) -> np.ndarray:
        """Keys of the common sequences. Shapes: [sequences]."""
        return self._keys

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """How many samples each sequence of a chunk counts for. Shapes: int64 [sequences]."""
        indices = np.arange(self._sizes[chunk])
        return self.num_samples(np.full(len(indices), chunk), indices)

    def num_samples(self, chunks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """The longest of the joined sequences counts, or the one that defines the minibatch size."""
        sequences = self._sequences_before[chunks] + indices
        samples = [
            other.num_samples(self._keys[sequences])
            for other in self._others
            if not self._defining or other.deserializer in self._defining
        ]
        if not self._defining or self._first in self._defining:
            samples.append(self._first.num_samples(self._chunks[chunks], self._indices[sequences]))
        return np.max(samples, axis=0)

    def retain(self, chunks: Iterable[int]) -> None:
        """Keep these chunks of the first deserializer in memory."""
        self._first.retain(self._chunks[list(chunks)].tolist())

    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read the sequences from all deserializers."""
        sequences = self._sequences_before[chunks] + indices
        data = dict(self._first.take(self._chunks[chunks], self._indices[sequences]))
        lengths = next(iter(data.values())).lengths
        for other in self._others:
            streams = other.take(self._keys[sequences])
            if other.deserializer.broadcasts:
                streams = {name: _repeated(ragged, lengths) for name, ragged in streams.items()}
            data.update(streams)
        return data


def _numbered(streams: Sequence[StreamInformation]) -> list[StreamInformation]:
    """The streams of all deserializers, with consecutive ids."""
    names = [info.name for info in streams]
    for name in {name for name in names if names.count(name) > 1}:
        raise RuntimeError(f"Two streams with the same name '{name}' have been found. Please rename the duplicate.")
    return [
        StreamInformation(s.name, i, s.storage_format, s.dtype, s.sample_shape, s.m_defines_mb_size)
        for i, s in enumerate(streams)
    ]


def _comparable(keys: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Keys of several deserializers; where some are names, numbers are texts: CNTK matches '7' of HTK's files with 7.

    >>> _comparable([np.array(["7", "b"]), np.array([7, -1])])[1].tolist()
    ['7', '18446744073709551615']
    """
    if len({each.dtype.kind for each in keys}) == 1:
        return list(keys)
    return [each if each.dtype.kind == "U" else each.view(np.uint64).astype(str) for each in keys]


def _repeated(ragged: Ragged, lengths: np.ndarray | None) -> Ragged:
    """The first sample of each sequence, repeated to these lengths."""
    if lengths is None:
        return ragged
    return Ragged(ragged.data[np.repeat(ragged.offsets[:-1], lengths)], lengths)


class _KeyIndex:
    """Looks up the sequences of a deserializer by key; of several with the same key, the first is used."""

    def __init__(self, deserializer: Deserializer, keys: np.ndarray) -> None:
        self.deserializer, self._keys = deserializer, keys

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys in ascending order, with the chunk and the index of each."""
        chunks, indices = enumerate_sequences(self.deserializer.chunk_sizes())
        order = np.argsort(self._keys, kind="stable")
        return self._keys[order], chunks[order], indices[order]

    def _find(self, keys: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self._sorted[0], keys), len(self._sorted[0]) - 1)

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Whether the deserializer has a sequence with each key. Shapes: [keys] -> bool [keys]."""
        return self._sorted[0][self._find(keys)] == keys

    def num_samples(self, keys: np.ndarray) -> np.ndarray:
        """Number of samples of the sequences with these keys. Shapes: [keys] -> int64 [keys]."""
        matches = self._find(keys)
        return self.deserializer.num_samples(self._sorted[1][matches], self._sorted[2][matches])

    def take(self, keys: np.ndarray) -> Mapping[str, Ragged]:
        """Read the sequences with these keys. Shapes: [keys]."""
        matches = self._find(keys)
        return self.deserializer.take(self._sorted[1][matches], self._sorted[2][matches])
