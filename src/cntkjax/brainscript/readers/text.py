"""CNTKTextFormatReader, CNTKBinaryReader and UCIFastReader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...configuration import Block
from ...io import CBFDeserializer, CTFDeserializer, StreamDef
from ...io._uci import labels_in
from ...sgd import ConfigError

_OPTIONS = ("maxErrors", "chunkSizeInBytes")
_LABEL_TYPES = ("Category", "Regression", "None")


def text_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of a file in CNTK's text format."""
    description = CTFDeserializer(block.existing_file("file"), {
        name: StreamDef(
            field=alias, shape=stream.size("dim"), defines_mb_size=stream.flag("definesMBSize", False),
            is_sparse=stream.choice("format", ("dense", "sparse"), "dense") == "sparse",
        ) for name, alias, stream in _streams(block.required_block("input"))
    })
    description.update({option: block.integer(option) for option in _OPTIONS if block.get(option) is not None})
    if block.flag("skipSequenceIds", False):
        description["skipSequenceIds"] = True
    return [description]


def binary_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of a file in CNTK's binary format, whose streams may get other names."""
    description, inputs = CBFDeserializer(block.existing_file("file")), block.block("input")
    for name, alias, stream in _streams(inputs) if inputs is not None else ():
        sizes = {"dim": stream.size("dim")} if "dim" in stream else {}
        description["input"][name] = {"alias": alias, "definesMBSize": stream.flag("definesMBSize", False)} | sizes
    return [description]


def uci_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of a UCIFastReader block, which has a block for each stream."""
    return [_table(block) | {"input": {each.name: _columns(each) for each in block.inner() if _kind(each) != "None"}}]


def uci_labels(block: Block) -> Iterator[tuple[Block, list[str]]]:
    """The blocks of labels of a UCIFastReader block, with the labels that are in the data."""
    for stream in block.inner():
        if _is_of_labels(stream) and _kind(stream) == "Category":
            yield stream, labels_in(_table(block), stream.integer("start", 0))


def _table(block: Block) -> dict[str, str]:
    """The file of a UCIFastReader block, and what separates its columns."""
    files = {each.existing_file("file") for each in block.inner()}
    if len(files) != 1:
        raise ConfigError(f"{block.path()} needs blocks of streams with one file, such as features = [ start = 1 ; "
                          "dim = 2 ] and labels = [ start = 0 ; dim = 1 ; labelDim = 2 ; labelMappingFile = ... ]")
    options = {key: block.text(key) for key in ("customDelimiter", "customDecimalPoint") if block.get(key) is not None}
    return {"type": "UCIFastDeserializer", "file": files.pop(), **options}


def _kind(stream: Block) -> str:
    return stream.choice("labelType", _LABEL_TYPES, "Category")


def _is_of_labels(stream: Block) -> bool:
    return any(key in stream for key in ("labelDim", "labelMappingFile", "labelType"))


def _columns(stream: Block) -> dict[str, Any]:
    """The columns of a stream: of labels if it has a key of these, unless they are numbers to predict."""
    start, dim = stream.integer("start", 0), stream.size("dim", 1)
    if _kind(stream) == "Regression" or not _is_of_labels(stream):
        return {"start": start, "dim": dim}
    if dim != 1:
        raise ConfigError(f"{stream.path()}: a label is in one column, but dim = {dim}; for numbers as labels give "
                          "labelType = Regression")
    return {"start": start, "labelDim": stream.size("labelDim"),
            "labelMappingFile": stream.existing_file("labelMappingFile")}


def _streams(inputs: Block) -> Iterator[tuple[str, str, Block]]:
    """The name of each stream, that in the file, and its block."""
    for stream in inputs.inner():
        yield stream.name, stream.text("alias") if "alias" in stream else stream.name, stream


__all__ = ["binary_deserializer", "text_deserializer", "uci_deserializer", "uci_labels"]
