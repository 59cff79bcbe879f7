"""Features and labels of speech in the formats of the Hidden Markov Model Toolkit (HTK).

A feature file has a header, int32 frames, int32 period in 100 ns, int16 bytes of a frame, int16 kind, and float32
frames, or int16 ones if it is compressed; most files are big-endian. A script file lists utterances,
``name=file[first,last]`` with numbers of frames. A master label file has for each utterance its name in quotes, lines
``begin end label`` with times in 100 ns, 100,000 to a frame, and a dot.
Source: The HTK Book, sections 5.10 and 6.3; CNTK 2.7 for how it interprets such files.
"""

from __future__ import annotations

import os
import re
import struct
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from math import floor, inf
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..engine.data.ragged import SparseRows, offsets_of, ranges
from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..variables import Record
from . import _mlf_vectorized
from ._files import open_binary
from ._number_parsing import parse_decimal
from ._streams import StreamInformation
from ._utterances import UtteranceDeserializer, utterance_name
from .deserializer import register_deserializer

FRAME_PERIOD = 100_000  # in the unit of label files, 100 ns
MAX_FRAMES = 10**7  # of an utterance, more than a day
_MAX_FRAME = 2**31 - 1  # in a feature file
_KINDS = {6, 7, 9, 11}  # MFCC, FBANK, USER and PLP, those that CNTK reads
_COMPRESSED = 0o2000  # a qualifier of the kind
_TIME = re.compile(r"\+?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_SCRIPT = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<file>.+)\[(?P<first>[0-9]+),(?P<last>[0-9]+)\]")


@public
def HTKFeatureDeserializer(streams: Mapping[str, Record]) -> Dictionary:
    """Read features of speech; a script file lists the feature files of each stream.

    Args:
        streams: name -> ``StreamDef`` with the script file as `scp`. With `context`, this many frames to the left and
            right are concatenated to each; with `broadcast`, the only frame of an utterance is repeated to the length
            of the other streams. Without a context, a stream of an odd multiple of a frame's size has its neighbors

    Shapes: a sample is [shape * (left + 1 + right)].
    Errors: ValueError for a stream without a script file.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> description = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=33, context=(2, 2), scp="train.scp")))
    >>> description["_deserializers"][0]["input"]["x"]["contextWindow"]
    [2, 2]
    """
    descriptions = []
    for name, stream in streams.items():
        if not stream.get("scp"):
            raise ValueError(
                f"No scp files specified for HTKFeatureDeserializer: stream '{name}'; write "
                f"{name}=StreamDef(shape=..., scp='files.scp')"
            )
        definition = {
            "dim": stream.dim,
            "scpFile": stream.scp[0] if isinstance(stream.scp, list) else stream.scp,
            "contextWindow": list(stream.get("context", (0, 0))),
            "expandToUtterance": stream.get("broadcast", False),
            "definesMBSize": stream.defines_mb_size,
            "maxSequenceLength": stream.max_sequence_length,
        }
        descriptions.append({"type": "HTKFeatureDeserializer", "input": {name: definition}})
    return Dictionary(_deserializers=descriptions)


@public
def HTKMLFDeserializer(
    label_mapping_file: str, streams: Mapping[str, Record], phoneBoundaries: bool = False
) -> Dictionary:
    """Read the labels of frames from master label files, as sparse one-hot vectors.

    Args:
        label_mapping_file: file with the names of the labels, one per line
        streams: one stream, name -> ``StreamDef`` with the label file or files as `mlf`
        phoneBoundaries: the first frame of each label has a 2 instead of a 1, as CTC requires

    Shapes: a sample is [shape], the number of labels.
    Errors: ValueError for several streams.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> description = HTKMLFDeserializer("states.list", StreamDefs(y=StreamDef(shape=132, mlf="train.mlf")))
    >>> description["input"]["y"]["mlfFile"]
    'train.mlf'
    """
    name, definition = _label_stream("HTKMLFDeserializer", streams)
    definition |= {"labelMappingFile": label_mapping_file, "phoneBoundaries": str(phoneBoundaries).lower()}
    return Dictionary(type="HTKMLFDeserializer", input={name: definition})


@public
def HTKMLFBinaryDeserializer(streams: Mapping[str, Record]) -> Dictionary:
    """Read the labels of frames from binary master label files (``BinaryMasterLabels``), as sparse one-hot vectors.

    Args:
        streams: one stream, name -> ``StreamDef`` with the label file or files as `mlf`

    Shapes: a sample is [shape], the number of labels.
    Errors: ValueError for several streams.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> description = HTKMLFBinaryDeserializer(StreamDefs(y=StreamDef(shape=132, mlf="train.bin")))
    >>> description["input"]["y"]["mlfFile"]
    'train.bin'
    """
    name, definition = _label_stream("HTKMLFBinaryDeserializer", streams)
    return Dictionary(type="HTKMLFBinaryDeserializer", input={name: definition})


def _label_stream(kind: str, streams: Mapping[str, Record]) -> tuple[str, dict[str, Any]]:
    """Name and definition of the only stream."""
    if len(streams) != 1:
        raise ValueError(f"{kind} only accepts a single stream, not {', '.join(streams)}; use one each")
    ((name, stream),) = streams.items()
    files = stream.mlf
    key = {"mlfFileList": files} if isinstance(files, list) and len(files) > 1 else {
        "mlfFile": files[0] if isinstance(files, list) else files
    }
    return name, {"dim": stream.dim, **key}


def script_path(file: str, script: str, folder: str = "") -> str:
    """Path of a file that a script lists: `.../` is the script's own folder, and other relative names are in `folder`.

    >>> script_path(".../a.mfc", "data/train.scp"), script_path("a.mfc", "data/train.scp", "/speech")
    ('data/a.mfc', '/speech/a.mfc')
    """
    return os.path.join(os.path.dirname(script), file[4:]) if file.startswith(".../") else os.path.join(folder, file)


class FeatureHeader(NamedTuple):
    """What the header of a feature file says.

    `frames`: their number. `values`: numbers in a frame. `order`: of bytes, as in NumPy's types. `is_compressed`: each
    number is (q + b) / a, of int16 q; a and b are float32 numbers behind the header, `values` of each.
    """

    frames: int
    values: int
    order: str
    is_compressed: bool

    @classmethod
    def of(cls, opened: BinaryIO) -> FeatureHeader | None:
        """The header of a file at its begin; None if it is too short."""
        header = opened.read(12)
        if len(header) < 12:
            return None
        # Nothing says which order the bytes have, but only a few kinds of features make sense.
        is_kind = {order: struct.unpack(f"{order}h", header[10:])[0] & 63 in _KINDS for order in "<>"}
        order = "<" if is_kind["<"] and not is_kind[">"] else ">"
        frames, _, size, kind = struct.unpack(f"{order}iihh", header)
        if kind & _COMPRESSED:
            return cls(frames - 4, size // 2, order, True)  # a and b count as four frames
        return cls(frames, size // 4, order, False)

    @property
    def begin(self) -> int:
        """The byte at which the frames begin."""
        return 12 + 8 * self.values * self.is_compressed

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers in frames."""
        return np.dtype(self.order + ("i2" if self.is_compressed else "f4"))


@register_deserializer("HTKFeatureDeserializer")
class HTKFeatures(UtteranceDeserializer):
    """Features of one stream, opened from a description that ``HTKFeatureDeserializer`` returns.

    Errors: RuntimeError for files that cannot be read or are damaged, with file and line.
    """

    def __init__(self, description: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = description["input"].items()
        self.frame_mode = self.reads_whole_chunks = frame_mode
        self.broadcasts = bool(definition["expandToUtterance"])
        self._left, self._right = definition["contextWindow"]
        self._dim = int(definition["dim"])
        self._files = list(self._script(definition["scpFile"], definition.get("prefixPathInSCP", "")))
        self.names = [utterance for utterance, *_ in self._files]
        self.frames = np.array([last - first + 1 for _, _, first, last in self._files], np.int64)
        width = self._dim * (self._left + 1 + self._right)
        self._expand()
        defines = bool(definition["definesMBSize"])
        self.streams = [StreamInformation(name, 0, "dense", np.float32, (width,), defines)]
        self.num_chunks = len(self.chunks)

    def _script(self, path: str, folder: str) -> Iterator[tuple[str, str, int, int]]:
        """Name, file, first and last frame of each utterance. `folder`: of files with relative names."""
        for number, text in self.lines(path):
            match = _SCRIPT.fullmatch(text)
            if match is None:
                self.fail(f"{text[:60]!r} has no range of frames; write name=file[first,last]", number)
            first, last = (parse_decimal(match[key], _MAX_FRAME) for key in ("first", "last"))
            if first is None or last is None or last - first >= MAX_FRAMES:
                self.fail(
                    f"{text[-60:]!r} has a range of more than {MAX_FRAMES} frames, or one beyond frame {_MAX_FRAME}; "
                    "write name=file[first,last]", number,
                )
            if last < first:
                self.fail(f"the last frame, {last}, precedes the first one, {first}; write [first,last]", number)
            file = script_path(match["file"], path, folder)
            yield utterance_name(match["name"] or file), file, first, last

    def _expand(self) -> None:
        """Without a context, a stream of an odd multiple of a frame's size has the neighbors of frames, as in CNTK."""
        if self._left or self._right or not self._files:
            return
        with suppress(OSError), open_binary(self._files[0][1]) as opened:  # `read` raises it
            header = FeatureHeader.of(opened)
            times, rest = divmod(self._dim, header.values) if header is not None and header.values > 0 else (0, 0)
            if header is not None and times % 2 and not rest:
                self._left = self._right = times // 2
                self._dim = header.values

    def read(self, utterances: np.ndarray) -> np.ndarray:
        """Read the feature files."""
        begins = offsets_of(self.frames[utterances])
        samples = np.empty((int(begins[-1]), self._left + 1 + self._right, self._dim), np.uint32)
        for (begin, end), utterance in zip(pairwise(begins.tolist()), utterances.tolist(), strict=True):
            _, file, first, last = self._files[utterance]
            self._read_utterance(file, first, last, samples[begin:end])
        return samples.view(np.float32).reshape(len(samples), -1)

    def _read_utterance(self, file: str, first: int, last: int, samples: np.ndarray) -> None:
        """Read the frames of an utterance with their context; the first and last one are repeated at the ends.

        Shapes: samples uint32 [last - first + 1, left + 1 + right, dim], the bits of float32 numbers.
        """
        has_context = samples.shape[1] > 1
        frames = np.empty((len(samples), self._dim), np.uint32) if has_context else samples
        try:
            with open_binary(file) as opened:
                header = self._checked_header(opened, file, first, last)
                factors = np.frombuffer(opened.read(header.begin - 12), f"{header.order}f4")
                opened.seek(header.begin + first * header.dtype.itemsize * self._dim)
                numbers = np.empty(frames.shape, header.dtype) if header.is_compressed else frames.view(header.dtype)
                size = opened.readinto(numbers.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
        except OSError as error:
            raise RuntimeError(f"{self.path}: error opening file {file!r}: {error.strerror}") from error
        if size != numbers.nbytes:
            self.fail(f"{file!r} is truncated; copy it or extract the features again")
        if header.is_compressed:
            a, b = factors.astype(np.float32).reshape(2, -1)
            np.divide(numbers.astype(np.float32) + b, a, out=frames.view(np.float32))
        elif not header.dtype.isnative:
            frames.byteswap(inplace=True)
        for i in range(samples.shape[1] if has_context else 0):
            samples[:, i] = frames[np.clip(np.arange(len(frames)) + i - self._left, 0, len(frames) - 1)]

    def _checked_header(self, opened: BinaryIO, file: str, first: int, last: int) -> FeatureHeader:
        header = FeatureHeader.of(opened)
        if header is None:
            self.fail(f"{file!r} is no HTK file: it has fewer than 12 bytes")
        if header.values != self._dim:
            self.fail(
                f"a frame of {file!r} has {header.values} numbers, not {self._dim}; set the shape of the stream to "
                f"{header.values}, or to an odd multiple for frames with their neighbors"
            )
        if last >= header.frames:
            self.fail(
                f"frames {first} to {last} of {file!r}: end frame exceeds its {header.frames} frames; the last one is "
                f"{header.frames - 1}"
            )
        return header


class _Labels(UtteranceDeserializer):
    """Labels of one stream; if files repeat an utterance, its first labels are used.

    With phone boundaries, the first frame of each label has a 2 instead of a 1.
    """

    def __init__(self, description: Mapping[str, Any], frame_mode: bool = False) -> None:
        ((name, definition),) = description["input"].items()
        self.frame_mode = self.reads_whole_chunks = frame_mode
        self._marks_boundaries = definition.get("phoneBoundaries") == "true"
        if frame_mode and self._marks_boundaries:
            raise RuntimeError(
                "HTKMLFDeserializer: frame mode and phoneBoundaries are mutually exclusive; leave out one of them"
            )
        self._width = int(definition["dim"])
        runs_by_name: dict[str, np.ndarray] = {}
        paths = definition.get("mlfFileList") or [definition["mlfFile"]]
        for path in paths:
            self.path = path
            for utterance, runs in self._utterances(path):
                if len(runs):  # as in CNTK, others have no labels
                    runs_by_name.setdefault(utterance, runs)
        self.path = ", ".join(paths)
        self.names = list(runs_by_name)
        runs_of_all = list(runs_by_name.values()) or [np.empty((0, 2), np.int64)]
        self._labels, self._lengths = np.concatenate(runs_of_all).T.astype(np.int32)
        self._first_run = offsets_of(np.fromiter(map(len, runs_by_name.values()), np.int64, len(runs_by_name)))
        self.frames = np.diff(offsets_of(self._lengths)[self._first_run])
        self.streams = [StreamInformation(name, 0, "sparse", np.float32, (self._width,))]
        self.num_chunks = len(self.chunks)

    @abstractmethod
    def _utterances(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        """The utterances of a file, each with the label and the length of its runs. Shapes: int64 [runs, 2]."""

    def read(self, utterances: np.ndarray) -> SparseRows:
        """Expand the runs of labels to frames."""
        first = self._first_run[utterances]
        runs = ranges(first, self._first_run[utterances + 1] - first)
        lengths = self._lengths[runs]
        indices = np.repeat(self._labels[runs], lengths)
        values = np.ones(len(indices), np.float32)
        if self._marks_boundaries:
            values[offsets_of(lengths)[:-1]] = 2
        return SparseRows(np.arange(len(indices) + 1), indices, values, self._width)


@register_deserializer("HTKMLFDeserializer")
class MasterLabels(_Labels):
    """Labels of one stream, opened from the description that ``HTKMLFDeserializer`` returns.

    Without a label mapping file, which configurations of CNTK's command line may leave out, lines are ``begin end label
    number``, and begin and end count frames.

    Errors: RuntimeError for files that cannot be read or are malformed, with file and line.
    """

    def __init__(self, description: Mapping[str, Any], frame_mode: bool = False) -> None:
        (definition,) = description["input"].values()
        self._is_numbered = "labelMappingFile" not in definition
        self._numbers = {} if self._is_numbered else self._mapping(definition["labelMappingFile"])
        super().__init__(description, frame_mode)

    def _mapping(self, path: str) -> dict[str, int]:
        labels = [text.split()[0] for _, text in self.lines(path)]
        if not labels:
            self.fail("the label mapping file is empty; write one label per line")
        return {label: i for i, label in enumerate(labels)}

    def _utterances(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        if self._is_numbered:
            yield from self._utterances_by_line(path)
            return
        table = _mlf_vectorized.LabelTable({label: i for label, i in self._numbers.items() if i < self._width})
        try:
            for name, runs in _mlf_vectorized.utterances(path, table, FRAME_PERIOD):
                if runs[:, 1].sum() > MAX_FRAMES:
                    raise _mlf_vectorized.Unusual
                yield utterance_name(name.strip('"')), runs
        except (_mlf_vectorized.Unusual, OSError):
            yield from self._utterances_by_line(path)  # again from the start: the first labels of an utterance count

    def _utterances_by_line(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        name = ""
        runs: list[tuple[int, int]] = []
        lines = self.lines(path)
        if next(lines, (0, ""))[1] != "#!MLF!#":
            self.fail("a master label file has to begin with #!MLF!#", 1)
        frames = 0
        for number, text in lines:
            if text.startswith('"'):
                name, runs, frames = utterance_name(text.strip('"')), [], 0
            elif text == ".":
                yield name, np.array(runs, np.int64).reshape(-1, 2)
            else:
                runs.append(self._segment(number, text, frames))
                frames += runs[-1][1]

    def _segment(self, number: int, text: str, frames_before: int) -> tuple[int, int]:
        """The label and its number of frames."""
        columns = text.split()
        times = [_time(column) for column in columns[:2]]
        if len(columns) < 3 or None in times:
            self.fail(f"{text[:60]!r} is malformed; write 'begin end label', with times in 100 ns", number)
        period = 1 if self._is_numbered else FRAME_PERIOD
        first, end = (floor(time / period + 0.5) for time in times if time is not None)  # as CNTK rounds
        label = self._numbered(number, columns) if self._is_numbered else self._numbers.get(columns[2])
        if label is None or label >= self._width:
            known = self._width if self._is_numbered else min(len(self._numbers), self._width)
            self.fail(
                f"label {columns[2]!r} is not among the {known} labels; add it to the label mapping file, or raise the "
                "shape of the stream", number,
            )
        if first != frames_before or not first < end <= MAX_FRAMES:
            self.fail(
                f"frames {first} to {end} do not continue from frame {frames_before}, or are more than {MAX_FRAMES}; "
                "leave no gap", number,
            )
        return label, end - first

    def _numbered(self, number: int, columns: list[str]) -> int:
        """The number of a label that stands after it."""
        label = parse_decimal(columns[3], _MAX_FRAME) if len(columns) == 4 else None
        if label is None:
            self.fail(f"{' '.join(columns)[:60]!r} has no number of its label; give a label mapping file, or write "
                      "'begin end label number' with begin and end in frames", number)
        return label


def _time(text: str) -> float | None:
    """A time, which may have a fraction or an exponent, as in CNTK; None for other text."""
    whole = parse_decimal(text)
    time = float(text) if whole is None and _TIME.fullmatch(text) else inf
    return time if time < 2**53 else whole


@register_deserializer("HTKMLFBinaryDeserializer")
class BinaryMasterLabels(_Labels):
    """Labels of one stream, opened from the description that ``HTKMLFBinaryDeserializer`` returns.

    All is little-endian: ``MLF`` and an int16 version, then for each utterance its name, a uint32 number of frames, a
    uint16 number of runs, and for each run the uint16 number of its label and a uint16 number of frames. In version 1
    the name is a uint32, in version 2 a uint16 length and this many bytes.

    Errors: RuntimeError for files that cannot be read or are damaged, with file and offset.
    """

    def _utterances(self, path: str) -> Iterator[tuple[str, np.ndarray]]:
        try:
            with open_binary(path) as file:
                yield from self._entries(file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise RuntimeError(f"Failed to open input file: {path}: {error}") from error

    def _entries(self, file: BinaryIO, size: int) -> Iterator[tuple[str, np.ndarray]]:
        def read(kind: str, count: int = 1) -> np.ndarray:
            data = file.read(np.dtype(kind).itemsize * count)
            if len(data) < np.dtype(kind).itemsize * count:
                self.fail(f"it is truncated: it ends at byte {size}, with {count} numbers missing; copy it again")
            return np.frombuffer(data, kind)

        if file.read(3) != b"MLF":
            self.fail("a binary master label file has to begin with MLF")
        (version,) = read("<i2")
        if version not in (1, 2):
            self.fail(f"version {version} of binary master label files is unknown; only 1 and 2 are")
        while (begin := file.tell()) < size:
            if version == 1:
                name = str(read("<u4")[0])
            else:
                name = read("u1", int(read("<u2")[0])).tobytes().decode("utf-8", "replace")
            frames, count = int(read("<u4")[0]), int(read("<u2")[0])
            runs = read("<u2", 2 * count).reshape(-1, 2).astype(np.int64)
            runs = runs[runs[:, 1] > 0]
            if not 0 < frames == runs[:, 1].sum() <= MAX_FRAMES:
                self.fail(f"byte {begin}: the labels of {name!r} cover {runs[:, 1].sum()} of its {frames} frames")
            if runs[:, 0].max() >= self._width:
                self.fail(
                    f"byte {begin}: label {runs[:, 0].max()} of {name!r} is not among the {self._width} labels; "
                    "raise the shape of the stream"
                )
            yield name, runs
