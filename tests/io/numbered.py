"""Batches of numbered sequences."""

import numpy as np

from cntkjax.engine.data.ragged import Ragged
from cntkjax.io._batcher import Batcher
from cntkjax.io._sampler import Sampler
from cntkjax.io._streams import StreamInformation
from cntkjax.io.deserializer import ChunkedDeserializer

LENGTHS = [9, 2, 6, 1, 12, 3, 7, 4]


class Numbered(ChunkedDeserializer):
    """Sequence i has lengths[i] samples, all of them i."""

    def __init__(self, lengths, chunks):
        self.streams = [StreamInformation("x", 0, "dense", np.float32, (1,))]
        self._numbers = np.array_split(np.arange(len(lengths)), chunks)
        self._all, self.num_chunks, self.reads = np.array(lengths), len(self._numbers), []

    def chunk_sizes(self):
        return np.array([len(numbers) for numbers in self._numbers])

    def read_chunk(self, chunk):
        self.reads.append(chunk)
        numbers = self._numbers[chunk]
        lengths = self._all[numbers]
        return {"x": Ragged(np.repeat(numbers, lengths)[:, None].astype(np.float32), lengths.astype(np.int32))}


def batcher(lengths=LENGTHS, chunks=1, sweeps=2**64, samples=2**64, prefetch=False, tumbling_windows=False, **order):
    deserializer = Numbered(lengths, chunks)
    deserializer.tumbling_windows = tumbling_windows
    return Batcher(Sampler(deserializer, **order), sweeps, samples, prefetch)


def batch(a_batcher, size, shard=(1, 0)):
    """Numbers of the sequences of the next minibatch, and whether a sweep ended."""
    parts, ended = a_batcher.next_batch(size, shard)
    streams = [part.data["x"].take(part.rows) for part in parts]
    return [int(s[0, 0]) for stream in streams for s in stream.sequences()], ended
