"""The SGD block of a command, as settings of the package's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ...configuration import Block, Text
from ...parallel import workers
from ...sgd._given import Assignment, argument
from ...sgd.keys import KEYS, SECTIONS
from ...sgd.settings import BlockSettings
from ..log import Log
from .lattices import LATTICE_KEYS
from .parallel_lines import is_parallel

_BLOCKS = {section[-1].lower(): section for section in SECTIONS if section}


def _time_constants(block: Block, name: str) -> str:
    """The time constants of momenta of a sample, by epoch."""
    return ":".join(repr(-1 / math.log(m)) if 0 < m < 1 else "0" for m in block.numbers(name))


_OTHER_NAMES: dict[str, tuple[str, str | Callable[[Block, str], str]]] = {  # in public configurations and on their page
    **dict.fromkeys(
        ("blockSizePerWorker", "syncPeriod", "syncFrequencyInFrames", "syncPeriodPerWorker", "syncPeriodPerWorkers"),
        ("blockSize", "({}) * #workers"),
    ),
    "momentumPerSample": ("momentumAsTimeConstant", _time_constants),
    "useAdagrad": ("gradUpdateType", lambda block, name: "adagrad" if block.flag(name, False) else "none"),
    "disableRegInBatchNormalization": ("disableWkInBatchNormal", "{}"), "numPrevLearnRate": ("numPrevLearnRates", "{}"),
}  # the key, and its value
_IGNORED = (  # here; those after "type" are for the action itself
    "numSubminiBatches", "randomSeedOffset", "executionEngine", "maxTempMemSizeInSamples", "type", "tensorBoardLogDir",
    "tensorBoardNumMBsToLogResult", "traceNodeNamesReal", "traceNodeNamesCategory", "traceNodeNamesSparse",
    *LATTICE_KEYS,
)  # fmt: skip


def settings_of(block: Block, model_path: str, log: Log, pieces: int = 0) -> BlockSettings:
    """The settings of a command's SGD block.

    `pieces`: how many pieces of sequences a minibatch of truncated back-propagation has, each of minibatchSize; 0
    without truncation.
    Errors: ConfigError for values that cannot be used.
    """
    sgd = block.required_block("SGD")
    computed: dict[str, Any] = {  # traceLevel here is that of the package's own messages, which are not in CNTK's logs
        "modelPath": model_path, "truncated": pieces > 0, "traceLevel": 0
    }
    if pieces:
        computed["minibatchSize"] = [size * pieces for size in sgd.integers("minibatchSize")]
    if workers.size() == 1 and not is_parallel(block):
        computed["parallelizationMethod"] = "none"
    names = {name.lower() for name in computed}
    given = [each for each in _assignments(sgd, (), log) if each.name.lower() not in names]
    given += [argument(name, name, value) for name, value in computed.items()]
    settings = BlockSettings(given, outer=sgd.outer, precision=block.text("precision", "float"))
    if settings["useBufferedAsyncGradientAggregation"]:
        log.warn("useBufferedAsyncGradientAggregation = true: gradients are used in their own minibatch here. CNTK "
                 "used them later, by a rule that is published nowhere")
    if settings.is_given("numMiniBatch4LRSearch"):
        log.warn("'numMiniBatch4LRSearch' is deprecated, please remove it and use 'numSamples4Search' instead.")
    return settings


def _assignments(block: Block, section: tuple[str, ...], log: Log) -> Iterator[Assignment]:
    """The keys of a block and those inside it; others are warned about."""
    known = [key.name for key in KEYS] + [name for part in SECTIONS for name in part] + [*_IGNORED, *_OTHER_NAMES]
    for warning in block.unknown(known):
        log.warn(warning)
    for entry in block:
        name = entry.name.lower()
        if entry.is_block and name in _BLOCKS:
            inner = block.required_block(entry.name)
            yield from _assignments(inner, _BLOCKS[name], log)
        elif not entry.is_block and any(key.name.lower() == name for key in KEYS):
            belongs = any(key.name.lower() == name and key.section[: len(section)] == section for key in KEYS)
            yield Assignment(entry.name, entry.place, section if belongs else (), block.expanded(entry))
        elif other := next((other for each, other in _OTHER_NAMES.items() if each.lower() == name), None):
            key, value = other
            text = block.expanded(entry)
            written = value.format(text.without_comments()) if isinstance(value, str) else value(block, entry.name)
            yield Assignment(key, entry.place, section, Text(text.name, written, pieces=((0, text.at(0)),)))


__all__ = ["settings_of"]
