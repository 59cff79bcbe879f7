"""CNTKTextFormatReader and CNTKBinaryReader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...io import CBFDeserializer, CTFDeserializer, StreamDef
from ..configuration import Block

_OPTIONS = ("maxErrors", "chunkSizeInBytes")


def text_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of a file in CNTK's text format."""
    inputs = block.required_block("input")
    streams = {}
    for name, alias, stream in _streams(inputs):
        streams[name] = StreamDef(
            field=alias,
            shape=stream.integer("dim"),
            is_sparse=stream.choice("format", ("dense", "sparse"), "dense") == "sparse",
            defines_mb_size=stream.flag("definesMBSize", False),
        )
    description = CTFDeserializer(block.existing_file("file"), streams)
    for option in _OPTIONS:
        if block.get(option) is not None:
            description[option] = block.integer(option)
    if block.flag("skipSequenceIds", False):
        description["skipSequenceIds"] = True
    return [description]


def binary_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of a file in CNTK's binary format, whose streams may get other names."""
    description, inputs = CBFDeserializer(block.existing_file("file")), block.block("input")
    for name, alias, stream in _streams(inputs) if inputs is not None else ():
        sizes = {"dim": stream.integer("dim")} if "dim" in stream else {}
        defines = stream.flag("definesMBSize", False)
        description["input"][name] = {"alias": alias} | sizes | {"definesMBSize": defines}
    return [description]


def _streams(inputs: Block) -> Iterator[tuple[str, str, Block]]:
    """The name of each stream, that in the file, and its block."""
    for entry in inputs:
        stream = inputs.required_block(entry.name)
        yield entry.name, stream.text("alias") if "alias" in stream else entry.name, stream


__all__ = ["binary_deserializer", "text_deserializer"]
