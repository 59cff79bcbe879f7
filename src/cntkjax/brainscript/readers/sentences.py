"""Minibatches of whole sentences, as LMSequenceReader and LUSequenceReader make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...device import DeviceDescriptor
from ...engine.data.ragged import Ragged, SparseRows, offsets_of, ranges
from ...io import MinibatchData, StreamInformation, UserMinibatchSource
from ...io._minibatch_data import Minibatch

Pieces = np.ndarray  # [n, 2]: the first word and the end of each piece of text
Rows = SparseRows | np.ndarray


@dataclass(frozen=True)
class Corpus:
    """A text: for each stream the rows of the words in pieces of it; `sentences`: all of them.

    `plan`: minibatches of a size.
    """

    streams: Mapping[StreamInformation, Callable[[Pieces], Rows]]
    sentences: Pieces
    plan: Callable[[Pieces, int], Sequence[Pieces]]


class SentenceSource(UserMinibatchSource):
    """Minibatches of a corpus. Each epoch begins at the start of the text, and ends with a whole minibatch.

    `has_steps`: whether they are of sentences; False: of single words. `on_read`: called with each minibatch.
    """

    truncation_length = 0  # sentences are whole
    on_read: Callable[[Mapping[Any, MinibatchData]], object] = staticmethod(lambda minibatch: None)

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self.has_steps = corpus, True
        self._epoch_size = self._next = self._seen = self._size = 0
        self._planned: Sequence[Pieces] = ()

    @property
    def num_samples(self) -> int:
        """The number of words."""
        return int(np.diff(self._corpus.sentences).sum())

    def stream_infos(self) -> list[StreamInformation]:
        """The streams of the corpus."""
        return list(self._corpus.streams)

    def begin_epoch(self, samples: int) -> None:
        """Return to the start; the data end with the minibatch that reaches so many words (0: with the text)."""
        self._epoch_size, self._next, self._seen = samples, 0, 0

    def next_minibatch(
        self, num_samples: int, number_of_workers: int = 1, worker_rank: int = 0,
        device: DeviceDescriptor | None = None,
    ) -> dict[StreamInformation, MinibatchData]:
        """The next minibatch; workers take its sentences in turns."""
        if num_samples != self._size:
            self._planned, self._size = self._corpus.plan(self._corpus.sentences, num_samples), num_samples
        if self._next >= len(self._planned) or 0 < self._epoch_size <= self._seen:
            return Minibatch()
        pieces = self._planned[self._next]
        self._next += 1
        self._seen += int(np.diff(pieces).sum())
        pieces = pieces[worker_rank::number_of_workers]
        lengths, is_last = np.diff(pieces)[:, 0] if self.has_steps else None, self._next == len(self._planned)
        minibatch = Minibatch({
            info: MinibatchData.from_ragged(info, Ragged(rows(pieces), lengths), is_last)
            for info, rows in self._corpus.streams.items()
        })
        self.on_read(minibatch)
        return minibatch

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position in the text."""
        return {"minibatch": self._next, "words": self._seen}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Move to a position in the text."""
        self._next, self._seen = int(state["minibatch"]), int(state["words"])


def words_in(pieces: Pieces) -> np.ndarray:
    """The places of all words of these pieces."""
    return ranges(pieces[:, 0], np.diff(pieces)[:, 0])


def one_hot(indices: np.ndarray, width: int) -> SparseRows:
    """Rows with ones. Shapes: indices [words, ones in each]; -1 is none."""
    present = indices >= 0
    return SparseRows(
        offsets_of(present.sum(1)), indices[present].astype(np.int32), np.ones(int(present.sum()), np.float32), width
    )


def grouped(sentences: Pieces, together: Callable[[int], int], equal: bool) -> list[Pieces]:
    """Minibatches of sentences in their order, each as soon as it is full.

    `together`: how many sentences of a length a minibatch has. `equal`: whether all have the same length.
    """
    open_: dict[int, list[np.ndarray]] = {}
    batches: list[list[np.ndarray]] = []
    for sentence in sentences:
        length = int(sentence[1] - sentence[0])
        key = length if equal else 0
        batch = open_.get(key)
        if batch is None:
            batch = open_[key] = []
            batches.append(batch)
        batch.append(sentence)
        if len(batch) >= together(length):
            del open_[key]
    return [np.array(batch) for batch in batches]


__all__ = ["Corpus", "Pieces", "SentenceSource", "grouped", "one_hot", "words_in"]
