"""The minibatch source that a reader block describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ...configuration import Block, Text, assignments
from ...configuration.block import FLAGS
from ...io import INFINITELY_REPEAT, StreamInformation
from ...ops import combine
from ...ops.functions import Function
from ...sgd import ConfigError
from ...variables import Variable
from ..log import Log
from .files import FileSource, UtteranceSource
from .images import image_deserializer, image_reader
from .sentences import Corpus, SentenceSource
from .speech import features, input_deserializers, labels, lattices, speech_deserializers
from .text import binary_deserializer, text_deserializer, uci_deserializer, uci_labels
from .words import CORPORA, SENTENCE_KEYS, SENTENCE_PARTS, WORDS

Deserializer = Callable[[Block], Sequence[Any]]
Source = FileSource | SentenceSource
Kind = TypeVar("Kind")

DESERIALIZERS: Mapping[str, Deserializer] = {
    "CNTKTextFormatDeserializer": text_deserializer, "CNTKBinaryFormatDeserializer": binary_deserializer,
    "ImageDeserializer": image_deserializer, "Base64ImageDeserializer": image_deserializer,
    "HTKFeatureDeserializer": partial(input_deserializers, features),
    "HTKMLFDeserializer": partial(input_deserializers, labels),
    "LatticeDeserializer": partial(input_deserializers, lattices),
}
READERS: Mapping[str, Deserializer] = {
    "CNTKTextFormatReader": text_deserializer, "CNTKBinaryReader": binary_deserializer, "ImageReader": image_reader,
    "HTKMLFReader": speech_deserializers, "HTKDeserializers": speech_deserializers, "UCIFastReader": uci_deserializer,
}
_LABELS = {"UCIFastReader": uci_labels, **WORDS}
_OF_CNTK = ("KaldiReader", "Kaldi2Reader", "LibSVMBinaryReader", "DSSMReader", "SparsePCReader", "BinaryReader")
_RANDOMIZE = {"auto": True, "none": False} | {name: value for name, value in FLAGS.items() if name}
_WITHOUT_EFFECT = (  # where they stand in public configurations
    "action", "beginSequence", "cacheBlockSize", "cacheIndex", "dim", "elementSize", "endSequence", "format",
    "hashSequenceKeys", "keepDataInMemory", "labelDim", "labelIn", "labelMappingFile", "labels", "labelType",
    "miniBatchMode", "mode", "module", "multiThreadedDeserialization", "nbrClass", "nbruttsineachrecurrentiter",
    "numCPUThreads", "pageFilePath", "phoneFile", "prefetch", "randomize", "randomizationWindow", "readAhead",
    "readerType", "readMethod", "sectionType", "traceLevel", "transpFile", "truncationLength", "type", "unk",
    "useMersenneTwisterRand", "useNumericSequenceKeys", "verbosity", "wfile", "windowSize", "wordMap", "wrecords",
    "writerType", "wsize",
)  # fmt: skip


def open_reader(
    block: Block, *, once: bool = False, shuffled: bool = True, samples: int = 0, whole: bool = False, piece: int = 0,
    log: Log | None = None,
) -> Source:
    """The source of a reader block.

    `once`: it ends after a sweep. `shuffled`: False reads the data in their order, whatever the block says. `samples`:
    it ends after so many, if not 0. `whole`: sequences are whole, whatever the block says. `piece`: the length of the
    pieces of truncated sequences if the block, and those around it, have none. `log`: gets warnings for keys that
    nothing reads.
    Errors: ConfigError for keys and values that cannot be used; those of the source for files that cannot be read.
    """
    source: Source
    if (read := _corpus(block)) is not None:
        source = SentenceSource(read(block))
    else:
        source = _files(block, once, shuffled, 0 if whole else length_of_pieces(block, piece), whole)
    if log is not None:
        for warning in block.unread(_WITHOUT_EFFECT):
            log.warn(warning)
    if samples and isinstance(source, SentenceSource):
        source.begin_epoch(samples)
    elif samples:
        source.end_at(samples)
    return source


def label_maps(block: Block) -> dict[str, list[str]]:
    """{labelMappingFile of a reader block: the labels of its data, in the order in which they appear}.

    Errors: ConfigError for readers whose data have no names of labels; those of the reader.
    """
    kind = block.text("readerType")
    labels: dict[str, list[str]] = {}
    if (read := _named(_LABELS, kind)) is None:
        raise ConfigError(f"the labels of {kind} have no names in the data: this is for {', '.join(_LABELS)}")
    for stream, names in read(block):
        if path := stream.file("labelMappingFile", ""):
            labels[path] = list(dict.fromkeys([*labels.get(path, ()), *names]))
    if not labels:
        raise block.missing("labelMappingFile")
    return labels


def _corpus(block: Block) -> Callable[[Block], Corpus] | None:
    """What reads the text of a reader of sentences; None for other readers."""
    return _named(CORPORA, block.text("readerType")) if block.own("deserializers") is None else None


def _named(kinds: Mapping[str, Kind], value: str) -> Kind | None:
    """That of a name in any case, which may be that of a library."""
    return next((kind for name, kind in kinds.items() if name.lower() == value.lower().removesuffix(".dll")), None)


def _files(block: Block, once: bool, shuffled: bool, truncation: int, whole: bool) -> FileSource:
    deserializers, options, together = description_of(block, truncation, shuffled, whole)
    options["max_sweeps"] = 1 if once else INFINITELY_REPEAT
    if together:
        return UtteranceSource(deserializers, together, **options)
    source = FileSource(deserializers, **options)
    source.are_full = not once and options["frame_mode"] and block.text("miniBatchMode", "").lower() == "full"
    return source


def sentences(text: str) -> SentenceSource:
    """The source of a block of a reader of sentences, for programs that ``cntkjax port`` writes.

    Errors: as of `open_reader`.
    """
    source = open_reader(Block("reader", None, assignments(Text("the reader of sentences", text))))
    assert isinstance(source, SentenceSource)
    return source


def sentences_text(block: Block) -> list[str]:
    """The lines of a block for `sentences`, those of blocks around it included; none for another reader."""
    if _corpus(block) is None:
        return []
    values = {key: block.get(key) for key in SENTENCE_KEYS}
    parts = [part for name in SENTENCE_PARTS if (part := block.block(name)) is not None]
    return [f"{key} = {value.without_comments()}" for key, value in values.items() if value is not None] + [
        line for part in parts for line in (f"{part.name} = [", *(
            f"    {each.name} = {part.expanded(each).without_comments()}" for each in part), "]")
    ]


def description_of(
    block: Block, truncation: int, shuffled: bool = True, whole: bool = False
) -> tuple[list[Any], dict[str, Any], int]:
    """The deserializers of a reader of files, the arguments of a MinibatchSource but how often it reads the data, and
    how many utterances are side by side, if not 0: then it is a UtteranceSource. Arguments: as of `open_reader`.
    """
    deserializers, is_of_frames = _deserializers(block), not whole and _reads_frames(block)
    options = (_window(block, deserializers) if shuffled else {"randomize": False}) | {
        "frame_mode": is_of_frames, "truncation_length": truncation,
        "randomization_seed": block.integer("randomizationSeed", 0),
    }
    is_old = block.own("deserializers") is None and block.text("readerType").lower().startswith("htkmlf")
    of_utterances = is_old and not (whole or truncation or is_of_frames)
    return deserializers, options, max(block.integer("nbruttsineachrecurrentiter", 1), 1) if of_utterances else 0


def _deserializers(block: Block) -> list[Any]:
    listed = block.blocks("deserializers")
    if not listed:
        return list(_kind(block, "readerType", READERS)(block))
    return [each for one in listed for each in _kind(one, "type", DESERIALIZERS)(one)]


def _kind(block: Block, key: str, kinds: Mapping[str, Deserializer]) -> Deserializer:
    """What reads the format that a key names."""
    value = block.text(key)
    if (kind := _named(kinds, value)) is not None:
        return kind
    text = block.get(key)
    assert text is not None
    names = [*kinds, *(CORPORA if kinds is READERS else ())]
    if value in _OF_CNTK:  # no nearest name has its format
        raise text.at(0).error(f"{value} is not supported: convert the data to CNTK's text format, with rows such as "
                               "|features 0.5 2 |labels 0 1, and read them with CNTKTextFormatReader")
    raise text.at(0).unknown(f"there is no {key} {value}", value, names, f"there are {', '.join(names)}")


def _reads_frames(block: Block) -> bool:
    """Whether sequences are frames: that is HTKMLFReader's default, and so are the rows of UCIFastReader."""
    is_old = block.own("deserializers") is None and block.text("readerType").lower().startswith(("htk", "uci"))
    return block.flag("frameMode", is_old and not block.flag("truncated", False))


def _window(block: Block, deserializers: Sequence[Any]) -> dict[str, Any]:
    """How sequences are shuffled. Windows are counted in samples, but those of CNTK's text format in chunks."""
    text = block.text("randomize", "true")
    size = int(text) if text.isdigit() else 0
    if size < 2 and not _RANDOMIZE[block.choice("randomize", _RANDOMIZE, "true")]:
        return {"randomize": False}
    size = size if size > 1 else block.integer("randomizationWindow", 0)
    if not size:
        return {}
    has_text = any(each.get("type") == "CNTKTextFormatDeserializer" for each in deserializers)
    if block.flag("sampleBasedRandomizationWindow", text.isdigit() or not has_text):
        return {"randomization_window_in_chunks": 0, "randomization_window_in_samples": size}
    return {"randomization_window_in_chunks": size}


def length_of_pieces(block: Block, piece: int) -> int:
    """The length of the pieces that sequences are cut into; 0 if they are whole."""
    if not block.flag("truncated", False):
        return 0
    if length := block.integer("truncationLength", 0):
        return length
    sizes = (block.block("SGD") or block).integers("minibatchSize")
    if not sizes and not piece:
        raise ConfigError(f"{block.path()} is truncated, but has no length of pieces: give truncationLength or "
                          "minibatchSize")
    return sizes[0] if sizes else piece


def pieces_of(block: Block) -> int:
    """How many pieces of minibatchSize a minibatch of truncated sequences has; 1 if they are not truncated."""
    return block.integer("nbruttsineachrecurrentiter", 1) if block.flag("truncated", False) else 1


def streams_of(nodes: Sequence[Variable | Function], source: Source) -> dict[Any, StreamInformation]:
    """{input of the nodes: the stream of its name}. Errors: ConfigError if there is none."""
    streams = {info.name: info for info in source.stream_infos()}
    by_input = {}
    for variable in combine([*nodes]).arguments:
        info = streams.get(variable.name) or next(
            (each for name, each in streams.items() if name.lower() == variable.name.lower()), None
        )
        if info is None:
            raise ConfigError(f"the reader has no input {variable.name}, which the network needs; its inputs are "
                              f"{', '.join(streams)}: name one of them {variable.name}")
        sizes = math.prod(info.sample_shape), math.prod(variable.shape)
        if min(*info.sample_shape, *variable.shape, 1) > 0 and sizes[0] != sizes[1]:
            raise ConfigError(f"the reader's {info.name} have {sizes[0]} values a sample, but the network's input "
                              f"{variable.name} has {sizes[1]}: correct the dimension there, or in the network")
        by_input[variable] = info
    source.has_steps = any(len(variable.dynamic_axes) > 1 for variable in by_input)
    return by_input


__all__ = [
    "Source", "description_of", "label_maps", "length_of_pieces", "open_reader", "pieces_of", "sentences",
    "sentences_text", "streams_of",
]  # fmt: skip
