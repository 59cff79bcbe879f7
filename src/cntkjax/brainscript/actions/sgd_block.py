"""The SGD block of a command, as settings of the package's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ...parallel import workers
from ...sgd._text import Assignment, ConfigText, Raw, as_raw
from ...sgd.keys import KEYS, SECTIONS
from ...sgd.settings import BlockSettings
from ..configuration import Block
from ..log import Log
from ..source import ConfigError, Place, Text
from .parallel_lines import is_parallel

_BLOCKS = {section[-1].lower(): section for section in SECTIONS if section}
_PLACED = re.compile(r"(.*?), line (\d+), column (\d+): (.*)", re.DOTALL)
_NOT_INHERITED = ("tracelevel",)  # of the package's own messages
_OTHER_NAMES = {  # that public configurations have: the key, and its value
    **dict.fromkeys(("blockSizePerWorker", "syncPeriod", "syncFrequencyInFrames"), ("blockSize", "({}) * #workers")),
    "momentumPerSample": ("momentumAsTimeConstant", "{}"),
    "disableRegInBatchNormalization": ("disableWkInBatchNormal", "{}"),
}
_IGNORED = ("numSubminiBatches", "randomSeedOffset", "executionEngine", "maxTempMemSizeInSamples", "type")


def settings_of(block: Block, model_path: str, log: Log, pieces: int = 0) -> BlockSettings:
    """The settings of a command's SGD block.

    `pieces`: how many pieces of sequences a minibatch of truncated back-propagation has, each of minibatchSize; 0
    without truncation.
    Errors: ConfigError for values that cannot be used.
    """
    sgd = block.block("SGD")
    if sgd is None:
        raise block.missing("SGD")
    computed = {"modelPath": _quoted(model_path), "truncated": str(pieces > 0).lower()}
    if pieces:
        computed["minibatchSize"] = ":".join(f"{size * pieces}" for size in sgd.integers("minibatchSize"))
    if workers.size() == 1 and not is_parallel(block):
        computed["parallelizationMethod"] = "none"
    names = {name.lower() for name in computed}
    given = [each for each in _assignments(sgd, (), log) if each.name.lower() not in names]
    given += [Assignment(name, name, (), as_raw(value, name)) for name, value in computed.items()]
    around = {}
    if sgd.outer is not None:
        for key in KEYS:
            name = key.name.lower()
            value = None if name in _NOT_INHERITED or name in names else sgd.outer.get(key.name)
            if value is not None and value.content[:1] not in ("[", "{"):
                around[name] = raw(value)
    precision = block.get("precision")
    references = {} if precision is None else {"precision": raw(precision)}
    try:
        settings = BlockSettings(given, references=references, around=around)
    except ConfigError as error:
        raise _with_line(error, sgd) from error
    if settings["useBufferedAsyncGradientAggregation"]:
        log.warn("useBufferedAsyncGradientAggregation = true: gradients are used in their own minibatch here. CNTK "
                 "used them later, by a rule that is published nowhere")
    return settings


def _with_line(error: ConfigError, sgd: Block) -> ConfigError:
    """The error with the user's line, if it is about a value in or around the block."""
    match = _PLACED.match(str(error))
    if match is None:
        return error
    name, line, column = match[1], int(match[2]), int(match[3])
    values = [place for scope in sgd.scopes() for place in _values(scope) if str(place).startswith(f"{name}, line ")]
    before = [place for place in values if place.line == line and place.column <= column]
    if not before:
        return error
    nearest = max(before, key=lambda place: place.column)
    return nearest.text.at(nearest.offset + column - nearest.column).error(match[4])


def _values(block: Block) -> Iterator[Place]:
    """Where the values of a block, and of those inside it that belong to SGD, begin."""
    for entry in block:
        inner = block.block(entry.name) if entry.is_block and entry.name.lower() in _BLOCKS else None
        if inner is not None:
            yield from _values(inner)
        elif not entry.is_block:
            yield block.expanded(entry).at(0).original


def _assignments(block: Block, section: tuple[str, ...], log: Log) -> Iterator[Assignment]:
    """The keys of a block and those inside it; others are warned about."""
    known = [key.name for key in KEYS] + [name for part in SECTIONS for name in part] + [*_IGNORED, *_OTHER_NAMES]
    for warning in block.unknown(known):
        log.warn(warning)
    for entry in block:
        name = entry.name.lower()
        if entry.is_block and name in _BLOCKS:
            inner = block.block(entry.name)
            assert inner is not None
            yield from _assignments(inner, _BLOCKS[name], log)
        elif not entry.is_block and any(key.name.lower() == name for key in KEYS):
            belongs = any(key.name.lower() == name and key.section[: len(section)] == section for key in KEYS)
            value = raw(block.expanded(entry))
            yield Assignment(entry.name, str(entry.place), section if belongs else (), value)
        elif other := next((other for each, other in _OTHER_NAMES.items() if each.lower() == name), None):
            value, (key, written) = raw(block.expanded(entry)), other
            text = _time_constants(block.numbers(entry.name)) if name == "momentumpersample" else value.text
            yield Assignment(key, str(entry.place), section, as_raw(written.format(text), value.place()))


def _time_constants(momenta: list[float]) -> str:
    """The time constants of momenta of a sample, by epoch."""
    return ":".join(repr(-1 / math.log(m)) if 0 < m < 1 else "0" for m in momenta)


def raw(text: Text) -> Raw:
    """A value with its place, as the parser of SGD blocks takes it."""
    place = text.at(0).original
    content = text.without_comments().strip()
    source = ConfigText(f"{place.text.name}, line {place.line}", " " * (place.column - 1) + content, is_file=False)
    return Raw(source, place.column - 1, len(source.text))


def _quoted(value: str) -> str:
    quote = "'" if '"' in value else '"'
    return f"{quote}{value}{quote}"


__all__ = ["settings_of"]
