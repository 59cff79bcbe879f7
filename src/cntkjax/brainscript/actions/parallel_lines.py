"""Whether training is parallel, and what CNTK logs about it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...configuration import Block
from ...parallel import workers
from ...sgd.settings import BlockSettings


def is_parallel(block: Block) -> bool:
    """Whether the configuration has parallelTrain = true at its top; the block in SGD has the same name."""
    *_, root = block.scopes()
    value = root.own("parallelTrain")
    return value is not None and value.content[:1] not in ("[", "{") and root.flag("parallelTrain", False)


def initialization(settings: BlockSettings) -> str:
    """The line before training, of workers that sum gradients; empty without them."""
    if settings["parallelizationMethod"] != "dataParallelSGD":
        return ""
    bits = settings["gradientBits"].at(0)
    manner = f"with FP{bits} aggregation" if bits >= 32 else f"for {bits}-bit quantization"
    return f"Initializing dataParallelSGD {manner}."


def methods(settings: BlockSettings, epoch: int) -> tuple[str, str]:
    """The line about the method before an epoch, and what follows 'Starting minibatch loop'; empty without workers.

    `epoch`: its number from 1.
    """
    method = settings["parallelizationMethod"]
    if method == "none" or epoch < settings["parallelizationStartEpoch"]:
        return "", ""
    return _merging(settings, method), "".join(f", {each}" for each in _loop(settings, method, epoch))


def _merging(settings: BlockSettings, method: str) -> str:
    """The line of workers that merge their models."""
    count = workers.size()
    line = f"Parallel training ({count} workers) using "
    if method == "modelAveragingSGD":
        return f"{line}ModelAveraging"
    if method != "blockMomentumSGD":
        return ""
    size, constant = settings["blockMomentumSGD.blockSize"], settings["blockMomentumAsTimeConstant"]
    parts = [
        f"BlockMomentumSGD with block momentum = {math.exp(-size / constant) if constant else 0:6.4f}",
        f"block momentum time constant (per worker) = {constant / count:6.4f}",
        f"block learning rate = {settings['blockLearningRate']:6.4f}",
        f"block size per worker = {size // count} samples",
        *(["using Nesterov-style block momentum"] if settings["useNesterovMomentum"] else []),
        *(["resetting SGD momentum after sync"] if settings["resetSGDMomentum"] else []),
    ]
    return f"{line}{', '.join(parts)}."


def _loop(settings: BlockSettings, method: str, epoch: int) -> Iterator[str]:
    ranks = f"training (myRank = {workers.rank()}, numNodes = {workers.size()}"
    if method == "dataParallelSGD":
        yield f"DataParallelSGD {ranks}, numGradientBits = {settings['gradientBits'].at(epoch - 1)})"
    if method == "dataParallelASGD":
        block = settings["dataParallelASGD.blockSize"]
        yield f"DataParallelASGD {ranks}, SamplesSyncToServer = {block // workers.size()})"
    if settings["distributedMBReading"] or not settings.is_given("distributedMBReading"):  # true by default (log)
        yield "distributed reading is ENABLED"


__all__ = ["initialization", "is_parallel", "methods"]
