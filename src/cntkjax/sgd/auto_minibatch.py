"""autoAdjustMinibatch: larger minibatches as long as the criterion does not suffer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._trials import Trials
from .history import Epoch
from .settings import BlockSettings

SHARE = 0.05  # of an epoch's samples, for the trial of each size
_LEAST = 2  # updates in a trial: the loss after a single one says little


def is_due(settings: BlockSettings, epoch: int) -> bool:
    """Whether a larger size is searched before an epoch, which counts from 0.

    Sizes that the block lists hold first; from then on there is a search every minibatchSizeTuningFrequency epochs.
    """
    since = epoch - settings["minibatchSize"].epochs
    return settings["autoAdjustMinibatch"] and since >= 0 and since % settings["minibatchSizeTuningFrequency"] == 0


def size_before(settings: BlockSettings, epochs: Sequence[Epoch], epoch: int) -> int:
    """The size of an epoch if there is no search before it: that of the block, or of the epoch before."""
    listed = settings["minibatchSize"]
    if settings["autoAdjustMinibatch"] and epoch >= listed.epochs and epochs:
        return epochs[-1].minibatch_size
    return listed.at(epoch)


def search(trials: Trials, settings: BlockSettings, rate: float, size: int, samples: int) -> int:
    """The largest of size, 2 size, 4 size, ... whose trial loses at most the block's margin against that of `size`.

    Trials are on the same samples, as many as numMiniBatch4LRSearch minibatches of this size have, at most a twentieth
    of the `samples` of an epoch, with at least two updates. They are judged by the loss of these samples afterwards.
    """
    margin = settings["minibatchSearchCriterionErrorMargin"] / 100
    count = max(min(settings.search_minibatches, int(samples * SHARE) // size), _LEAST)
    largest, base = size, math.inf
    trials.begin_again()
    while size <= settings["minibatchSizeTuningMax"] and count >= _LEAST:
        losses = trials.losses([rate] * count, size)
        loss = trials.loss_of(size, len(losses))
        if not (math.isfinite(loss) and loss - base <= abs(base) * margin):
            break
        base = loss if base == math.inf else base
        largest, size, count = size, 2 * size, count // 2
    return largest
