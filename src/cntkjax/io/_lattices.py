"""Lattices of utterances in CNTK's format."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..variables import Record
from ._files import open_binary
from ._number_parsing import parse_decimal
from ._streams import StreamInformation
from ._utterances import UtteranceDeserializer
from .deserializer import register_deserializer

_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<file>[^\[]*)\[(?P<first>[0-9]+)(?:,[0-9]+)?\]")


@public
def LatticeDeserializer(lattice_index_file: str, streams: Mapping[str, Record]) -> Dictionary:
    """Read the lattices of utterances, for ``lattice_sequence_with_softmax``.

    Args:
        lattice_index_file: file with the paths of tables of contents, one per line. Each of their lines locates a
            lattice: ``name=archive[first byte]``; without an archive, it is in that of the line before
        streams: one stream, name -> ``StreamDef``

    Shapes: a sample is [1], four bytes of a lattice as a float32.
    Errors: ValueError for several streams.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> description = LatticeDeserializer("lattices.list", StreamDefs(z=StreamDef()))
    >>> description["input"]["z"]["latticeIndexFile"]
    'lattices.list'
    """
    if len(streams) != 1:
        raise ValueError(f"LatticeDeserializer only accepts a single stream, not {', '.join(streams) or 'none'}")
    (name,) = streams
    return Dictionary(type="LatticeDeserializer", input={name: {"latticeIndexFile": lattice_index_file}})


@register_deserializer("LatticeDeserializer")
class Lattices(UtteranceDeserializer):
    """The bytes of lattices, opened from the description that ``LatticeDeserializer`` returns, or one with the tables
    of contents as ``tableFiles``.

    Four bytes are a float32 and a step of a sequence; a lattice ends where the next one in its archive begins.

    Errors: RuntimeError for files that cannot be read or are malformed, with file and line.
    """

    frame_mode = False  # frames have no lattices of their own

    def __init__(self, description: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = description["input"].items()
        locations: dict[str, tuple[str, int]] = {}
        listed = definition.get("tableFiles") or [text for _, text in self.lines(definition["latticeIndexFile"])]
        for table in listed:
            for utterance, location in self._table(table):
                locations.setdefault(utterance, location)
        begins: dict[str, list[int]] = {}
        for file, begin in sorted(set(locations.values())):
            begins.setdefault(file, []).append(begin)
        self.path = definition.get("latticeIndexFile") or listed[0]
        self.names = list(locations)
        self._spans = [(file, begin, self._end(begins[file], file, begin)) for file, begin in locations.values()]
        self.frames = np.array([-(-(end - begin) // 4) for _, begin, end in self._spans], np.int64)
        self.streams = [StreamInformation(name, 0, "dense", np.float32, (1,))]
        self.num_chunks = len(self.chunks)

    def _table(self, path: str) -> Iterator[tuple[str, tuple[str, int]]]:
        """The utterances of a table of contents, with the archive and the offset of their lattices."""
        archive = ""
        for number, text in self.lines(path):
            match = _ENTRY.fullmatch(text)
            archive = match["file"] or archive if match else ""
            begin = parse_decimal(match["first"]) if match else None
            if match is None or begin is None or not archive:
                self.fail(f"{text[:60]!r} does not locate a lattice; write name=archive[first byte]", number)
            yield match["name"], (archive, begin)

    def _end(self, begins: Sequence[int], file: str, begin: int) -> int:
        """Where the lattice at an offset ends; ``begins`` are the offsets in the archive, ascending."""
        following = bisect_right(begins, begin)
        if following < len(begins):
            return begins[following]
        try:
            with open_binary(file) as archive:
                end = os.fstat(archive.fileno()).st_size
        except OSError as error:
            raise RuntimeError(f"Failed to open input file: {file}: {error}") from error
        if end <= begin:
            raise RuntimeError(f"{file}: it has {end} bytes, but the table of contents has a lattice at byte {begin}")
        return end

    def read(self, utterances: np.ndarray) -> np.ndarray:
        """Read the bytes of lattices."""
        parts = []
        for path, begin, end in map(self._spans.__getitem__, utterances.tolist()):
            with open_binary(path) as file:
                file.seek(begin)
                data = file.read(end - begin)
            parts.append(np.frombuffer(data + bytes(-(end - begin) % 4), "<f4").reshape(-1, 1))
        return np.concatenate(parts)
