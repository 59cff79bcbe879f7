"""searchBeforeEpoch and autoAdjustMinibatch as on CNTK's command line, whose logs are reproduced.

`SGD.train` has the searches of auto_rate.py and auto_minibatch.py instead, which take a fifth of the training and end
with better models: docs/sgd_block.md compares them.

Source: its logs of Speech/DNN/Parallel1BitQuantizationWithAutoMBScaling and of
Speech/HTKDeserializers/DNN/ParallelBMWithAdjustLR, down to the last digits of their rates and criteria. Trials begin
as the epoch does, and are judged by the losses while they train.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from . import auto_rate
from ._trials import NO_RATE, Trials
from .history import Epoch
from .settings import BlockSettings

_FACTOR = 0.618  # from trial to trial
_SINGLE = float(np.float32(_FACTOR))  # in single precision, as the logs' rates show, above the first trial
_FIRST = float(np.float32(0.125 / _SINGLE))
_LEAST = 0.1  # of the smallest rate found before: the logs show no search that ends there


def samples_of(settings: BlockSettings) -> int:
    """The samples of a trial; the logs have those of minibatches of the first epoch."""
    return settings["numSamples4Search"] or settings.search_minibatches * settings["minibatchSize"].at(0)


def find_rate(
    trials: Trials, settings: BlockSettings, epochs: Sequence[Epoch], size: int, epoch_size: int,
    report: Callable[[str], object],
) -> tuple[float, list[tuple[float, float]]]:
    """The largest rate that is sufficient, and the (rate, loss) pairs of its trials.

    A rate is sufficient if its loss is at most the base criterion: the mean of the loss without updates and that of the
    last epoch, which has the square root of the trial's share of an epoch as its weight (a quarter, for a sixteenth),
    but not less than the former: no rate is sufficient for data on which the model is worse than on an epoch's.
    The search goes down from the largest rate that it found before the last epochs, divided by 0.618; the first one
    from 1 / (8 √minibatchSize); the logs have a single size, 1,024, and a rate of 1/256.
    """
    samples = samples_of(settings)
    before = [epoch.rate for epoch in epochs[-settings["numPrevLearnRates"] :]
              if auto_rate.is_due(settings, epoch.number - 1)]
    rate = max(before) / _SINGLE**2 if before else _FIRST / math.sqrt(size)
    least = _LEAST * min(before, default=rate)
    base = trials.mini_epoch("BaseAdaptiveLearnRateSearch", NO_RATE, size, samples)
    if epochs and math.isfinite(epochs[-1].loss):
        weight = math.sqrt(min(samples / epoch_size, 1.0))
        base = max(base, weight * epochs[-1].loss + (1 - weight) * base)
    losses: list[tuple[float, float]] = []
    while not losses or (losses[-1][1] > base and rate > least):
        rate *= _FACTOR
        losses.append((rate, trials.mini_epoch("AdaptiveLearnRateSearch", rate, size, samples)))
    report(f"SearchForBestLearnRate Epoch[{len(epochs) + 1}]: Best learningRatePerSample = {rate:.10g}, "
           f"baseCriterion={base:.10g}")
    return rate, sorted(losses)


def find_size(
    trials: Trials, settings: BlockSettings, epochs: Sequence[Epoch], rate: float, size: int,
    report: Callable[[str], object],
) -> int:
    """The largest of size, 2 size, 4 size, ... whose trial's loss is within the block's margin of that of `size`.

    A trial of a single minibatch would not show what its size does. The size is at most twice that of the epoch before,
    if that was found by a search, too.
    """
    number, samples = len(epochs) + 1, samples_of(settings)
    kind = f"AdaptiveMinibatchSearch Epoch[{number}]"
    largest = settings["minibatchSizeTuningMax"]
    if epochs and epochs[-1].number > settings["minibatchSize"].epochs:
        largest = min(largest, 2 * size)
    else:
        report(f"Before Epoch[{number}], previous minibatchSize {size} is considered invalid -> resetting.")
    bounds = f"{size}..{max(size, largest)}"

    def tried(size: int, title: str = "AdaptiveMinibatchSearch") -> float:
        report(f"{kind}: Evaluating trial minibatchSize={size} (search range: {bounds})...")
        return trials.mini_epoch(title, rate, size, samples)

    report(f"{kind}: Evaluating minibatchSizes {bounds}")
    base = tried(size, "BaseAdaptiveMinibatchSearch")
    report(f"{kind}: Computed baseCriterion {base:.8f} for minibatchSize={size}")
    limit = base + abs(base) * settings["minibatchSearchCriterionErrorMargin"] / 100
    best, reached = size, base
    while size <= min(largest, samples) and (loss := tried(size)) <= limit:
        report(f"{kind}: Keep searching... epochCriterion = {loss:.8f} vs. baseCriterion = {base:.8f}")
        best, reached, size = size, loss, 2 * size
    report(f"{kind}: Search successful. New minibatchSize is {best}. epochCriterion = {reached:.8f} vs baseCriterion = "
           f"{base:.8f}")
    return best
