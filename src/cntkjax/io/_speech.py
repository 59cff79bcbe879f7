"""Speech data: features and labels in the formats of the Hidden Markov Model Toolkit (HTK), and CNTK's lattices.

A feature file has a big-endian header, int32 frames, int32 period in 100 ns, int16 bytes of a frame, int16 kind, and
float32 frames. A script file lists utterances, ``name=file[first,last]`` with numbers of frames. A master label file
has for each utterance its name in quotes, lines ``begin end label`` with times in 100 ns, of which a frame has 100,000,
and a dot.
Source: The HTK Book, sections 5.10 and 6.3; CNTK 2.7 for what it makes of such files.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, BinaryIO, NoReturn

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows, offsets_of
from ..formats.containers import Dictionary
from ..variables import Record
from ._streams import Deserializer, StreamInformation

CHUNK = 90_000  # frames, a quarter of an hour: the utterance that goes beyond is the last one of a chunk
FRAME = 100_000  # of the unit of time in label files
LONGEST = 10**7  # frames of an utterance: more than a day
_CONTENT = re.compile(r"(?P<name>[^=]+)=(?P<file>[^\[]*)\[(?P<first>\d+)(?:,\d+)?\]")
_SCRIPT = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<file>.+)\[(?P<first>\d+),(?P<last>\d+)\]")


def HTKFeatureDeserializer(streams: Mapping[str, Record]) -> Dictionary:
    """Reads features of speech, each stream from the files that its script file lists.

    Args:
        streams: name -> ``StreamDef`` with the script file as `scp`; with `context` so many frames to the left and
            right are joined to each; with `broadcast` the one frame of an utterance stands for all of other streams

    Shapes: a sample is [shape * (left + 1 + right)].
    Errors: ValueError for a stream without a script file.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> made = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=33, context=(2, 2), scp="train.scp")))
        >>> made["_deserializers"][0]["input"]["x"]["contextWindow"]
        [2, 2]
    """
    made = []
    for name, stream in streams.items():
        if not stream.get("scp"):
            raise ValueError(f"No scp files specified for HTKFeatureDeserializer: stream '{name}'")
        definition = {
            "dim": stream.dim,
            "scpFile": stream.scp[0] if isinstance(stream.scp, list) else stream.scp,
            "contextWindow": list(stream.get("context", (0, 0))),
            "expandToUtterance": stream.get("broadcast", False),
            "definesMBSize": stream.defines_mb_size,
            "maxSequenceLength": stream.max_sequence_length,
        }
        made.append({"type": "HTKFeatureDeserializer", "input": {name: definition}})
    return Dictionary(_deserializers=made)


def HTKMLFDeserializer(
    label_mapping_file: str, streams: Mapping[str, Record], phoneBoundaries: bool = False
) -> Dictionary:
    """Reads labels of frames from master label files: sparse, one of as many as the list of their names has.

    Args:
        label_mapping_file: the names of labels, one in a row
        streams: one stream, name -> ``StreamDef`` with the label file or files as `mlf`
        phoneBoundaries: the first frame of each label has a 2 in place of the 1, as CTC wants it

    Errors: ValueError for several streams.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> made = HTKMLFDeserializer("states.list", StreamDefs(y=StreamDef(shape=132, mlf="train.mlf")))
        >>> made["input"]["y"]["mlfFile"]
        'train.mlf'
    """
    name, definition = _labels("HTKMLFDeserializer", streams)
    definition |= {"labelMappingFile": label_mapping_file, "phoneBoundaries": str(phoneBoundaries).lower()}
    return Dictionary(type="HTKMLFDeserializer", input={name: definition})


def HTKMLFBinaryDeserializer(streams: Mapping[str, Record]) -> Dictionary:
    """Reads labels of frames from binary master label files (see ``BinaryMasterLabels``): sparse, as above.

    Args:
        streams: one stream, name -> ``StreamDef`` with the label file or files as `mlf`

    Errors: ValueError for several streams.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> made = HTKMLFBinaryDeserializer(StreamDefs(y=StreamDef(shape=132, mlf="train.bin")))
        >>> made["input"]["y"]["mlfFile"]
        'train.bin'
    """
    name, definition = _labels("HTKMLFBinaryDeserializer", streams)
    return Dictionary(type="HTKMLFBinaryDeserializer", input={name: definition})


def LatticeDeserializer(lattice_index_file: str, streams: Mapping[str, Record]) -> Dictionary:
    """Reads the lattices of utterances, for ``lattice_sequence_with_softmax``.

    Args:
        lattice_index_file: a file with the names of tables of contents, one in a row. Each of their rows says where a
            lattice stands: ``name=archive[first byte]``; without an archive, in that of the row before.
        streams: one stream, name -> ``StreamDef``

    Shapes: a sample is [1]: four bytes of a lattice in a float32.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> made = LatticeDeserializer("lattices.list", StreamDefs(z=StreamDef()))
        >>> made["input"]["z"]["latticeIndexFile"]
        'lattices.list'
    """
    (name,) = streams
    return Dictionary(type="LatticeDeserializer", input={name: {"latticeIndexFile": lattice_index_file}})


def _labels(kind: str, streams: Mapping[str, Record]) -> tuple[str, dict[str, Any]]:
    if len(streams) != 1:
        raise ValueError(f"{kind} only accepts a single stream, not {', '.join(streams)}")
    ((name, stream),) = streams.items()
    files = stream.mlf
    key = {"mlfFileList": files} if isinstance(files, list) and len(files) > 1 else {
        "mlfFile": files[0] if isinstance(files, list) else files
    }  # fmt: skip
    return name, {"dim": stream.dim, **key}


class _Speech(Deserializer):
    """Utterances by name; in frame mode each of their frames is a sequence by itself."""

    path: str
    names: list[str]
    frames: np.ndarray  # of each utterance
    frame_mode: bool

    @cached_property
    def _chunks(self) -> list[slice]:
        """Which utterances are read together."""
        frames_before = offsets_of(self.frames)
        cuts = [0]
        while cuts[-1] < len(self.names):
            longer = int(np.searchsorted(frames_before, frames_before[cuts[-1]] + CHUNK, "right"))
            cuts.append(min(longer, len(self.names)))
        return [slice(*pair) for pair in pairwise(cuts)]

    def keys(self) -> np.ndarray:
        if not self.frame_mode:
            return np.array(self.names)
        return np.array([
            f"{name}\0{i}" for name, n in zip(self.names, self.frames, strict=True) for i in range(n)
        ])  # fmt: skip

    def lengths(self, chunk: int) -> np.ndarray:
        frames = self.frames[self._chunks[chunk]]
        return np.ones(int(frames.sum()), np.int64) if self.frame_mode else frames

    def _ragged(self, chunk: int, data: Any) -> Mapping[str, Ragged]:
        return {self.streams[0].name: Ragged(data, self.lengths(chunk).astype(np.int32))}

    def _fail(self, reason: str, line: int | None = None) -> NoReturn:
        raise RuntimeError(f"{self.path}{'' if line is None else f', line {line}'}: {reason}")

    def _lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Rows that are not empty, with their numbers."""
        self.path = path
        try:
            with open(path, encoding="utf-8") as file:
                for number, text in enumerate(file, 1):
                    if text.strip():
                        yield number, text.strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeError(f"Failed to open input file: {path}: {error}") from error


class HTKFeatures(_Speech):
    """Features of one stream, by the configuration that ``HTKFeatureDeserializer`` makes.

    Errors: RuntimeError for files that cannot be read or are damaged, with file and line.
    """

    def __init__(self, configuration: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = configuration["input"].items()
        self.frame_mode, self.expands = frame_mode, bool(definition["expandToUtterance"])
        self._left, self._right = definition["contextWindow"]
        self._dim = int(definition["dim"])
        self._files = list(self._script(definition["scpFile"]))
        self.names = [utterance for utterance, *_ in self._files]
        self.frames = np.array([last - first + 1 for _, _, first, last in self._files], np.int64)
        width = self._dim * (self._left + 1 + self._right)
        defines = bool(definition["definesMBSize"])
        self.streams = [StreamInformation(name, 0, "dense", np.float32, (width,), defines)]
        self.num_chunks = len(self._chunks)

    def _script(self, path: str) -> Iterator[tuple[str, str, int, int]]:
        for number, text in self._lines(path):
            match = _SCRIPT.fullmatch(text)
            if match is None:
                self._fail(f"{text[:60]!r} has no numbers of frames: name=file[first,last]", number)
            first, last = int(match["first"]), int(match["last"])
            if last < first:
                self._fail(f"the last frame, {last}, comes before the first one, {first}", number)
            file = match["file"]
            if file.startswith(".../"):
                file = os.path.join(os.path.dirname(path), file[4:])
            yield _utterance(match["name"] or file), file, first, last

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        parts = [self._utterance(*row[1:]) for row in self._files[self._chunks[chunk]]]
        return self._ragged(chunk, np.concatenate(parts))

    def _utterance(self, file: str, first: int, last: int) -> np.ndarray:
        """The frames of an utterance with their neighbours; the first and last one stand for those outside."""
        try:
            with open(file, "rb") as opened:
                header = opened.read(12)
                if len(header) < 12:
                    self._fail(f"{file!r} is no HTK file: it has {len(header)} bytes")
                frames, size = (int(np.frombuffer(header, kind, 1, at)[0]) for kind, at in ((">i4", 0), (">i2", 8)))
                if size != 4 * self._dim:
                    self._fail(f"a frame of {file!r} has {size} bytes; {self._dim} numbers have {4 * self._dim}")
                if last >= frames:
                    self._fail(f"frames {first} to {last} of {file!r}: end frame exceeds its {frames} frames")
                opened.seek(12 + first * size)
                data = opened.read((last - first + 1) * size)
        except OSError as error:
            raise RuntimeError(f"{self.path}: error opening file {file!r}: {error.strerror}") from error
        if len(data) != (last - first + 1) * size:
            self._fail(f"{file!r} is cut off")
        own = np.frombuffer(data, ">f4").astype(np.float32).reshape(-1, self._dim)
        around = np.arange(-self._left, self._right + 1)
        place = np.clip(np.arange(len(own))[:, None] + around, 0, len(own) - 1)
        return own[place].reshape(len(own), -1)


class _Labels(_Speech):
    """Labels of one stream. Of several rows of labels for one utterance the first one holds.

    With phone boundaries the first frame of each label has a 2 in place of the 1.
    """

    def __init__(self, configuration: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = configuration["input"].items()
        self.frame_mode, self._marks = frame_mode, definition.get("phoneBoundaries") == "true"
        if frame_mode and self._marks:
            raise RuntimeError("HTKMLFDeserializer: frame mode and phoneBoundaries are mutually exclusive")
        self._width = int(definition["dim"])
        found: dict[str, np.ndarray] = {}
        for path in definition.get("mlfFileList") or [definition["mlfFile"]]:
            self.path = path
            for utterance, runs in self._master(path):
                found.setdefault(utterance, runs)
        self.names, self._runs = list(found), list(found.values())
        self.frames = np.array([runs[:, 1].sum() for runs in self._runs], np.int64)
        self.streams = [StreamInformation(name, 0, "sparse", np.float32, (self._width,))]
        self.num_chunks = len(self._chunks)

    def _master(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        """The utterances of a file with their labels and for how many frames each of them lasts, [runs, 2]."""
        raise NotImplementedError

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        labels, lengths = np.concatenate(self._runs[self._chunks[chunk]]).T
        indices = np.repeat(labels, lengths)
        values = np.ones(len(indices), np.float32)
        if self._marks:
            values[offsets_of(lengths)[:-1]] = 2
        return self._ragged(chunk, SparseRows(np.arange(len(indices) + 1), indices, values, self._width))


class MasterLabels(_Labels):
    """Labels of one stream, by the configuration that ``HTKMLFDeserializer`` makes; likewise."""

    def __init__(self, configuration: Mapping[str, Any], frame_mode: bool = False) -> None:
        (definition,) = configuration["input"].values()
        labels = [text.split()[0] for _, text in self._lines(definition["labelMappingFile"])]
        self._numbers = {label: i for i, label in enumerate(labels)}
        super().__init__(configuration, frame_mode)

    def _master(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        name = ""
        runs: list[tuple[int, int]] = []
        lines = self._lines(path)
        if next(lines, (0, ""))[1] != "#!MLF!#":
            self._fail("a master label file begins with #!MLF!#", 1)
        frames = 0
        for number, text in lines:
            if text.startswith('"'):
                name, runs, frames = _utterance(text.strip('"')), [], 0
            elif text == ".":
                yield name, np.array(runs, np.int64).reshape(-1, 2)
            else:
                runs.append(self._segment(number, text, frames))
                frames += runs[-1][1]

    def _segment(self, number: int, text: str, frames_before: int) -> tuple[int, int]:
        """The number of the label, and of its frames."""
        columns = text.split()
        if len(columns) < 3 or not (columns[0].isdecimal() and columns[1].isdecimal()):
            self._fail(f"{text[:60]!r} is no 'begin end label'", number)
        first, end = (round(int(time) / FRAME) for time in columns[:2])
        label = self._numbers.get(columns[2])
        if label is None or label >= self._width:
            self._fail(f"label {columns[2]!r} is not among the {min(len(self._numbers), self._width)} labels", number)
        if first != frames_before or not first < end <= LONGEST:
            self._fail(f"frames {first} to {end} do not go on from frame {frames_before}", number)
        return label, end - first


class BinaryMasterLabels(_Labels):
    """Labels of one stream, by the configuration that ``HTKMLFBinaryDeserializer`` makes; likewise.

    All is little-endian: ``MLF`` and an int16 version, then for each utterance its name, a uint32 number of frames, a
    uint16 number of runs, and for each run the uint16 number of its label and a uint16 number of frames. In version 1
    the name is a uint32, in version 2 a uint16 length and so many bytes.
    """

    def _master(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        try:
            with open(path, "rb") as file:
                yield from self._entries(file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise RuntimeError(f"Failed to open input file: {path}: {error}") from error

    def _entries(self, file: BinaryIO, size: int) -> Iterator[tuple[str, np.ndarray]]:
        def taken(kind: str, count: int = 1) -> np.ndarray:
            data = file.read(np.dtype(kind).itemsize * count)
            if len(data) < np.dtype(kind).itemsize * count:
                self._fail(f"it is cut off: it ends at byte {size}, with {count} numbers to come")
            return np.frombuffer(data, kind)

        if file.read(3) != b"MLF":
            self._fail("a binary master label file begins with MLF")
        (version,) = taken("<i2")
        if version not in (1, 2):
            self._fail(f"version {version} of binary master label files is not known")
        while (begin := file.tell()) < size:
            if version == 1:
                name = str(taken("<u4")[0])
            else:
                name = taken("u1", int(taken("<u2")[0])).tobytes().decode("utf-8", "replace")
            frames, count = int(taken("<u4")[0]), int(taken("<u2")[0])
            runs = taken("<u2", 2 * count).reshape(-1, 2).astype(np.int64)
            runs = runs[runs[:, 1] > 0]
            if not 0 < frames == runs[:, 1].sum() <= LONGEST:
                self._fail(f"byte {begin}: the labels of {name!r} are for {runs[:, 1].sum()} of its {frames} frames")
            if runs[:, 0].max() >= self._width:
                self._fail(f"byte {begin}: label {runs[:, 0].max()} of {name!r} is not among the {self._width} labels")
            yield name, runs


class Lattices(_Speech):
    """The bytes of lattices, by the configuration that ``LatticeDeserializer`` makes; likewise.

    Four bytes are a float32, and a step of a sequence; a lattice ends where the next one in its archive begins.
    """

    frame_mode = False  # the frames of an utterance have no lattices of their own

    def __init__(self, configuration: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = configuration["input"].items()
        found: dict[str, tuple[str, int]] = {}
        for _, table in list(self._lines(definition["latticeIndexFile"])):
            for utterance, place in self._table(table):
                found.setdefault(utterance, place)
        begins: dict[str, list[int]] = {}
        for file, begin in sorted(set(found.values())):
            begins.setdefault(file, []).append(begin)
        self.names, places = list(found), list(found.values())
        self._places = [(file, begin, self._end(begins[file], file, begin)) for file, begin in places]
        self.frames = np.array([-(-(end - begin) // 4) for _, begin, end in self._places], np.int64)
        self.streams = [StreamInformation(name, 0, "dense", np.float32, (1,))]
        self.num_chunks = len(self._chunks)

    def _table(self, path: str) -> Iterator[tuple[str, tuple[str, int]]]:
        """The utterances of a table of contents, and in which archive and where their lattices stand."""
        archive = ""
        for number, text in self._lines(path):
            match = _CONTENT.fullmatch(text)
            archive = match["file"] or archive if match else ""
            if match is None or not archive:
                self._fail(f"{text[:60]!r} has no place of a lattice: name=archive[first byte]", number)
            yield match["name"], (archive, int(match["first"]))

    def _end(self, begins: Sequence[int], file: str, begin: int) -> int:
        following = bisect_right(begins, begin)
        if following < len(begins):
            return begins[following]
        try:
            end = os.path.getsize(file)
        except OSError as error:
            raise RuntimeError(f"Failed to open input file: {file}: {error}") from error
        if end <= begin:
            raise RuntimeError(f"{file}: it has {end} bytes, and a lattice is to begin at byte {begin}")
        return end

    def read(self, chunk: int) -> Mapping[str, Ragged]:
        parts = []
        for path, begin, end in self._places[self._chunks[chunk]]:
            with open(path, "rb") as file:
                file.seek(begin)
                data = file.read(end - begin)
            parts.append(np.frombuffer(data + bytes(-(end - begin) % 4), "<f4").reshape(-1, 1))
        return self._ragged(chunk, np.concatenate(parts))


def _utterance(name: str) -> str:
    """The name of an utterance: without an ending, and without HTK's '*/' for any folder."""
    return os.path.splitext(name.removeprefix("*/"))[0]


READERS = {
    "HTKFeatureDeserializer": HTKFeatures, "HTKMLFDeserializer": MasterLabels,
    "HTKMLFBinaryDeserializer": BinaryMasterLabels, "LatticeDeserializer": Lattices,
}  # fmt: skip

__all__ = [
    "BinaryMasterLabels", "HTKFeatureDeserializer", "HTKFeatures", "HTKMLFBinaryDeserializer", "HTKMLFDeserializer",
    "LatticeDeserializer", "Lattices", "MasterLabels",
]
