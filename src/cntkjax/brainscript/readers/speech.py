"""HTKMLFReader and the deserializers of HTK's files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from ...configuration import FILES_ARE_READ, Block
from ...configuration.source import content_of, local_path
from ...io import HTKFeatureDeserializer, HTKMLFDeserializer, LatticeDeserializer, StreamDef, StreamDefs
from ...io._htk import FeatureHeader, script_path
from ...sgd import ConfigError
from ..network import LATTICES

_GROUPS = ("input", "output")
_FILE = re.compile(r"(?:[^=]*=)?(.*?)(?:\[\d+,\d+\])?\s*")


def speech_deserializers(block: Block) -> Sequence[Any]:
    """The deserializers of a HTKMLFReader block: one for each of its blocks with a script or label file."""
    streams = _streams(block)
    has_lattices = any("denlatTocFile" in stream for stream in streams)
    if has_lattices and (block.flag("frameMode", True) or block.flag("truncated", False)):
        raise ConfigError(f"{block.path()} has lattices, which are those of whole utterances: write frameMode = false "
                          "and truncated = false")
    deserializers = [each for stream in streams for each in _deserializer(stream, has_lattices)]
    if not deserializers:
        raise ConfigError(f"{block.path()} has no features: write features = [ dim = ... ; scpFile = ... ]")
    return deserializers


def input_deserializers(make: Callable[[Block], Any], block: Block) -> Sequence[Any]:
    """The deserializers that `make` makes of the streams in the block ``input`` of a deserializer."""
    return [make(stream) for stream in block.required_block("input").inner()]


def _streams(block: Block) -> list[Block]:
    """The blocks of streams, which may stand in the blocks input and output."""
    streams: list[Block] = []
    for inner in block.inner():
        streams += _streams(inner) if inner.name.lower() in _GROUPS else [inner]
    return streams


def lattices(stream: Block) -> Any:
    """Lattices of utterances."""
    return LatticeDeserializer(stream.existing_file("latticeIndexFile"), StreamDefs(**{stream.name: StreamDef()}))


def _deserializer(stream: Block, has_lattices: bool) -> list[Any]:
    if "denlatTocFile" in stream:
        description = LatticeDeserializer("", StreamDefs(**{LATTICES: StreamDef()}))
        description["input"][LATTICES] = {"tableFiles": _tables(stream)}
        return [description]
    if "mlfFile" in stream or "mlfFileList" in stream or ("file" in stream and "labelDim" in stream):
        return [labels(stream)]
    return [features(stream, has_lattices)] if "scpFile" in stream or "file" in stream else []


def _tables(stream: Block) -> list[str]:
    """The tables of contents of lattices; their names may have wildcards."""
    if (numerators := stream.get("numlatTocFile")) is not None:
        raise numerators.at(0).error("lattices of the labels alone are not read: the labels themselves are used")
    pattern = stream.file("denlatTocFile")
    return sorted(glob(pattern)) or [stream.existing_file("denlatTocFile")]


def lattice_files(block: Block) -> dict[str, str]:
    """The files that tell what the lattices of a HTKMLFReader mean, as options of ``lattice_sequence_with_softmax``.

    Errors: ConfigError if the reader lacks some, or has lattices of several sets of units.
    """
    streams = _streams(block)
    tables = next((_tables(each) for each in streams if "denlatTocFile" in each), None)
    models = next((each for each in streams if "phoneFile" in each), None)
    states = next((each for each in streams if "labelMappingFile" in each), None)
    if tables is None or models is None or states is None:
        raise ConfigError(f"SequenceWithSoftmax needs a HTKMLFReader with lattices = [ denlatTocFile = ... ], hmms = [ "
                          f"phoneFile = ... ; transpFile = ... ] and labels with a labelMappingFile: {block.path()} "
                          "lacks some of them")
    symbols = [table.removesuffix(".toc") + ".symlist" for table in tables]
    contents = {content_of(Path(each)) for each in symbols} if FILES_ARE_READ.get() else set()
    if len(contents) > 1:
        raise ConfigError(f"the lists of symbols of the lattices differ ({symbols[0]} and others): write the archives "
                          "with one list")
    return {
        "symListPath": symbols[0], "phonePath": models.existing_file("phoneFile"),
        "stateListPath": states.existing_file("labelMappingFile"), "transProbPath": models.existing_file("transpFile"),
    }


def features(stream: Block, count: bool = False) -> Any:
    """Features, with as many frames beside each as ``dim`` has room for.

    `count`: whether a minibatch has as many samples as frames, and not the numbers that another stream has.
    """
    script = stream.existing_file("scpFile" if "scpFile" in stream else "file")
    width, folder = stream.size("dim"), stream.file("prefixPathInSCP", "")
    size = _frame_size(script, folder)
    if "contextWindow" in stream:
        left, *more = stream.integers("contextWindow")
        context = left, more[0] if more else left
        dim = width if width == size else width // (sum(context) + 1)
    else:
        dim, (frames, rest) = size, divmod(width, size)
        if rest or frames % 2 == 0:
            raise ConfigError(f"{stream.path()}: dim = {width} is no odd multiple of the {size} numbers of a frame")
        context = frames // 2, frames // 2
    definition = StreamDef(
        shape=dim, scp=script, context=context, broadcast=stream.flag("expandToUtterance", False),
        defines_mb_size=stream.flag("definesMBSize", count),
    )
    description = HTKFeatureDeserializer(StreamDefs(**{stream.name: definition}))
    description["_deserializers"][0]["input"][stream.name]["prefixPathInSCP"] = folder
    return description


def _frame_size(script: str, folder: str) -> int:
    """The number of elements of a frame, from the header of the first file that a script lists."""
    first = next((line for line in Path(script).read_text(encoding="utf-8-sig").splitlines() if line.strip()), "")
    match = _FILE.fullmatch(first)
    file = match[1].strip() if match else ""
    path = script_path(file, script, folder)
    if not os.path.isfile(path):
        raise ConfigError(f"{script} lists {path or 'nothing'} first, which is no file here: set DataDir, or run in "
                          "the folder of the data (currentDirectory=)")
    with open(path, "rb") as opened:
        header = FeatureHeader.of(opened)
    if header is None:
        raise ConfigError(f"{path} is no HTK file")
    return max(header.values, 1)


def labels(stream: Block) -> Any:
    """Labels of frames, from label files or what lists them."""
    key = next((key for key in ("mlfFile", "mlfFileList") if key in stream), "file")
    listed = [local_path(name) for name in (stream.array(key) if key == "mlfFileList" else [stream.text(key)])]
    if key == "mlfFileList" and len(listed) == 1:  # a file that lists them
        content = Path(listed[0]).read_text(encoding="utf-8-sig")
        listed = [line.strip() for line in content.splitlines() if line.strip()]
    dim = stream.size("labelDim") if "labelDim" in stream else stream.size("dim")
    definition = StreamDef(shape=dim, mlf=listed, defines_mb_size=stream.flag("definesMBSize", False))
    deserializer = HTKMLFDeserializer(
        stream.file("labelMappingFile", ""), StreamDefs(**{stream.name: definition}),
        stream.flag("phoneBoundaries", False),
    )
    if stream.find("labelMappingFile") is None:  # then the lines have the numbers of labels
        del deserializer["input"][stream.name]["labelMappingFile"]
    return deserializer


__all__ = ["features", "input_deserializers", "labels", "lattice_files", "lattices", "speech_deserializers"]
