"""The block ``writer`` of the action write: labels as text, or features of speech in HTK's format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from ...configuration import Block
from ...sgd import ConfigError
from ..readers import open_reader
from ..writing import new_binary, new_text

_PERIOD, _USER = 100_000, 9  # 10 ms in units of 100 ns; HTK's kind of files with numbers of any meaning


class SequenceWriter(Protocol):
    """Writes the sequences of a node."""

    def sequence(self, values: Any, shape: Sequence[int]) -> None:
        """Write a sequence. Shapes: values [steps, *shape]."""


class _LabelWriter:
    """The most probable labels, one a line."""

    def __init__(self, block: Block, reader: Block, stack: ExitStack) -> None:
        self._labels = block.content("token").split()
        self._file = stack.enter_context(new_text(block.file("file")))

    def sequence(self, values: Any, shape: Sequence[int]) -> None:
        """Write the labels of a sequence."""
        rows = np.asarray(values).reshape(len(values), -1)
        if rows.shape[1] != len(self._labels):
            raise ConfigError(f"{self._file.name}: the node has {rows.shape[1]} values a sample, but its token file "
                              f"lists {len(self._labels)} labels")
        self._file.writelines(f"{self._labels[index]}\n" for index in rows.argmax(1))


class _FeatureWriter:
    """A HTK file for each utterance, whose names scpFile lists. Frames that come one by one are put together."""

    def __init__(self, block: Block, reader: Block, stack: ExitStack) -> None:
        self._block, self._dim = block, block.size("dim")
        lines = block.content("scpFile").split("\n")
        self._files = iter([line.strip().rpartition("=")[2].partition("[")[0] for line in lines if line.strip()])
        self._lengths, self._rows = utterance_lengths(reader), np.zeros((0, self._dim), np.float32)
        self._length, self._script = next(self._lengths, 0), block.file("scpFile")

    def sequence(self, values: Any, shape: Sequence[int]) -> None:
        """Write the utterances that end with this sequence."""
        rows = np.asarray(values, np.float32).reshape(len(values), -1)
        if rows.shape[1] != self._dim:
            where = self._block.path()
            raise ConfigError(f"{where}: the node has {rows.shape[1]} values a sample, not dim = {self._dim}")
        self._rows = np.concatenate([self._rows, rows])
        while self._length and len(self._rows) >= self._length:
            file = next(self._files, None)
            if file is None:
                raise ConfigError(f"{self._script} lists fewer files than there are utterances")
            header = struct.pack(">iihh", self._length, _PERIOD, 4 * self._dim, _USER)
            with new_binary(file) as opened:
                opened.write(header + self._rows[: self._length].astype(">f4").tobytes())
            self._rows, self._length = self._rows[self._length :], next(self._lengths, 0)


def utterance_lengths(reader: Block) -> Iterator[int]:
    """The number of frames of each utterance of a reader, in their order."""
    source = open_reader(reader, once=True, shuffled=False, whole=True)
    first = source.stream_infos()[0]
    while minibatch := source.next_minibatch(1 << 16):
        yield from np.diff(minibatch[first].ragged.offsets).tolist()


_WRITERS: dict[str, Callable[[Block, Block, ExitStack], SequenceWriter]] = {
    "HTKMLFWriter": _FeatureWriter, "LUSequenceWriter": _LabelWriter,
}


def block_writers(block: Block, reader: Block, stack: ExitStack) -> dict[str, SequenceWriter]:
    """{name of a node: what writes it}, for the blocks in a block ``writer``.

    Errors: ConfigError for types of writers that there are not, and for nodes and files that do not fit.
    """
    if "writerType" not in block:
        raise block.missing("writerType")
    make = _WRITERS[block.choice("writerType", tuple(_WRITERS), "")]
    return {each.name: make(each, reader, stack) for each in block.inner()}


__all__ = ["SequenceWriter", "block_writers"]
