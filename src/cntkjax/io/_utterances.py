"""What deserializers of speech have in common: utterances by name, whose frames may be sequences of their own."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows, offsets_of
from ._files import open_binary
from .deserializer import ChunkedDeserializer, Deserializer

CHUNK_FRAMES = 90_000  # a quarter of an hour; the utterance that exceeds it is the last one of its chunk


class UtteranceDeserializer(ChunkedDeserializer, ABC):
    """Base class: a subclass sets ``names`` and ``frames`` of all utterances, and defines ``read``.

    In frame mode, each frame of an utterance is a sequence of its own, which comes from a chunk in memory. Whole
    utterances are read when they are needed: they are long enough for that, and the window takes no memory.
    """

    path: str  # of the file that is being read, for messages
    names: list[str]
    frames: np.ndarray
    """Number of frames of each utterance. Shapes: int64 [utterances]."""
    frame_mode: bool
    reads_whole_chunks = False  # except in frame mode

    @classmethod
    def open(cls, description: Mapping[str, Any], frame_mode: bool = False) -> Deserializer:
        """Open what a description names."""
        return cls(description, frame_mode)  # type: ignore[call-arg]

    @abstractmethod
    def read(self, utterances: np.ndarray) -> np.ndarray | SparseRows:
        """The frames of utterances, end to end. Shapes: int64 [utterances] -> [frames, width]."""

    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """Read the utterances of a chunk."""
        samples = self.read(np.arange(len(self.names))[self.chunks[chunk]])
        return {self.streams[0].name: Ragged(samples, self.sequence_lengths(chunk).astype(np.int32))}

    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read sequences in this order, by name of the stream. Shapes: int64 [sequences] each."""
        if self.frame_mode:
            return super().take(chunks, indices)
        utterances = self._first_of_chunk[chunks] + indices
        return {self.streams[0].name: Ragged(self.read(utterances), self.frames[utterances].astype(np.int32))}

    @cached_property
    def _first_of_chunk(self) -> np.ndarray:
        return np.array([utterances.start for utterances in self.chunks], np.int64)

    @cached_property
    def chunks(self) -> list[slice]:
        """The utterances of each chunk."""
        frames_before = offsets_of(self.frames)
        cuts = [0]
        while cuts[-1] < len(self.names):
            end = int(np.searchsorted(frames_before, frames_before[cuts[-1]] + CHUNK_FRAMES, "right"))
            cuts.append(min(end, len(self.names)))
        return [slice(*pair) for pair in pairwise(cuts)]

    def sequence_keys(self) -> np.ndarray:
        """Names of the utterances, in frame mode with the number of the frame. Shapes: str [sequences]."""
        if not self.frame_mode:
            return np.array(self.names)
        return np.array([
            f"{name}\0{i}" for name, n in zip(self.names, self.frames, strict=True) for i in range(n)
        ])

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """Number of frames of each sequence of a chunk. Shapes: int64 [sequences]."""
        frames = self.frames[self.chunks[chunk]]
        return np.ones(int(frames.sum()), np.int64) if self.frame_mode else frames

    def record_lengths(self, chunk: int, data: Mapping[str, Ragged]) -> None:
        """Does nothing: the lengths are known without reading."""

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise a RuntimeError with file and line."""
        raise RuntimeError(f"{self.path}{'' if line is None else f', line {line}'}: {reason}")

    def lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Lines that are not blank, with their numbers from 1 on.

        Errors: RuntimeError if the file cannot be read, or is no text.
        """
        self.path = path
        try:
            with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig") as file:
                for number, text in enumerate(file, 1):
                    if "\0" in text:
                        self.fail("contains a NUL character: this is no text file, or it is damaged", number)
                    if text.strip():
                        yield number, text.strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeError(f"Failed to open input file: {path}: {error}") from error


def utterance_name(path: str) -> str:
    """Name of an utterance: without an extension, and without HTK's '*/' for any folder.

    >>> utterance_name("*/a.lab")
    'a'
    """
    return os.path.splitext(path.removeprefix("*/"))[0]
