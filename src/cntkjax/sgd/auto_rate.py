"""autoAdjustLR: learning rates from trials before each epoch, or from the improvement after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._trials import Trials
from .history import Epoch
from .settings import Settings

SHARE = 0.2  # of all minibatches, for trials
LATER_SHARE = 0.05  # of an epoch's minibatches, once the best rate is known
DEFAULT_RATE = 0.1  # per minibatch, where the block gives none
_GOLDEN = 0.618  # the factor between rates that are compared for a sufficient one
_DIVERGED = 0.5  # a trial ends at a loss by this fraction above the first one


def first_rate(settings: Settings, epoch: int, size: int) -> float:
    """The rate of an epoch as the block lists it."""
    return DEFAULT_RATE / size if settings.rates is None else settings.rates.at(epoch)


# ---- adjustAfterEpoch


def criterion_of(settings: Settings, epoch: Epoch) -> float:
    """What controls the rate: the loss or the metric, of the validation data or of the training data."""
    uses_validation = settings["useCVSetControlLRIfCVExists"] and epoch.cv_loss is not None
    loss, metric = (epoch.cv_loss, epoch.cv_metric) if uses_validation else (epoch.loss, epoch.metric)
    value = metric if settings["useEvalCriterionControlLR"] and metric is not None else loss
    return math.inf if value is None or math.isnan(value) else value


def factor_after(settings: Settings, epochs: Sequence[Epoch]) -> float:
    """What the block's rate is multiplied by in the epoch after these."""
    if not epochs or settings["autoAdjustLR"] != "adjustAfterEpoch":
        return 1.0
    improvement = improvement_after(settings, epochs)
    factor = epochs[-1].rate_factor
    if improvement is None:
        return factor
    if improvement < settings["reduceLearnRateIfImproveLessThan"]:
        return factor * settings["learnRateDecreaseFactor"]
    if improvement > settings["increaseLearnRateIfImproveMoreThan"]:
        return factor * settings["learnRateIncreaseFactor"]
    return factor


def improvement_after(settings: Settings, epochs: Sequence[Epoch]) -> float | None:
    """By which fraction the criterion has improved over the last interval; None if it is not yet time to look.

    The criteria of learnRateAdjustInterval epochs are averaged, and compared with the average of those before.
    """
    interval = settings["learnRateAdjustInterval"]
    if len(epochs) < 2 * interval or len(epochs) % interval:
        return None
    criteria = [criterion_of(settings, epoch) for epoch in epochs[-2 * interval :]]
    before, now = (sum(part) / interval for part in (criteria[:interval], criteria[interval:]))
    if not math.isfinite(now):
        return -math.inf
    return (before - now) / abs(before) if math.isfinite(before) and before else math.inf


def best_epoch(settings: Settings, epochs: Sequence[Epoch]) -> int:
    """The number of the epoch with the best criterion; 0 if there is none yet."""
    return min(epochs, key=lambda epoch: criterion_of(settings, epoch)).number if epochs else 0


def epoch_to_load(settings: Settings, epochs: Sequence[Epoch]) -> int | None:
    """The number of the epoch to whose model training returns, if the criterion has got worse since."""
    if settings["autoAdjustLR"] != "adjustAfterEpoch" or not settings["loadBestModel"]:
        return None
    improvement = improvement_after(settings, epochs)
    best = best_epoch(settings, epochs)
    return best if improvement is not None and improvement < 0 and best != epochs[-1].number else None


# ---- searchBeforeEpoch


class _Search:
    """The trials of a search, by their place on a logarithmic grid around the first rate.

    `last_loss`: that of the epoch before; without one a trial is judged by the loss of its minibatches after it,
    otherwise by the losses in its second half.
    """

    def __init__(
        self, trials: Trials, first: float, size: int, length: int, budget: int, last_loss: float | None = None
    ) -> None:
        self._trials, self._first, self._size, self._length = trials, first, size, length
        self._last_loss, self._after = last_loss, last_loss is None
        self._end = trials.minibatches + budget
        self.losses: dict[float, float] = {}

    def rate(self, place: float) -> float:
        """The rate at a place of the grid, whose unit is a factor of 10."""
        return self._first * 10.0**place

    def can_afford(self) -> bool:
        """Whether there are minibatches left for another trial."""
        return self._trials.minibatches + self._length * (1 + self._after) <= self._end

    def loss(self, place: float) -> float:
        """The loss of a trial; infinite if it has diverged."""
        if place not in self.losses:
            losses = self._trials.losses(self.rate(place), self._size, self._length, self._is_stable)
            if not losses or not self._is_stable(losses):
                loss = math.inf
            elif self._after:
                loss = self._trials.loss_after(losses, self._size)
            else:
                loss = _average(losses[len(losses) // 2 :])
            self.losses[place] = loss if math.isfinite(loss) else math.inf
        return self.losses[place]

    def _is_stable(self, losses: list[float]) -> bool:
        """Whether a trial may go on: its last loss is not far above the first one."""
        first, last = losses[0], losses[-1]
        limit = first + _DIVERGED * abs(first) if self._last_loss is None else 3 * max(first, self._last_loss, 0)
        return math.isfinite(last) and last <= limit

    @property
    def best(self) -> float:
        """The place of the best trial so far; of the smallest rate if all have diverged."""
        return min(self.losses, key=lambda place: (self.losses[place], place))


def _average(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def budget_of(settings: Settings, epoch: int, minibatches: int) -> int:
    """How many of an epoch's minibatches are spent on trials before it.

    In all epochs together these are at most a fifth. Epochs with a sufficient rate need a tenth; what is left goes to
    those with the best one, at most two fifths of each.
    """
    epochs, best = settings["maxEpochs"], min(settings["numBestSearchEpoch"], settings["maxEpochs"])
    share = LATER_SHARE
    if epoch < best:
        share = min(2.5 * SHARE, (SHARE * epochs - LATER_SHARE * (epochs - best)) / best)
    return min(settings["numMiniBatch4LRSearch"], int(minibatches * share))


def search(
    trials: Trials, settings: Settings, epochs: Sequence[Epoch], first: float, size: int, minibatches: int
) -> tuple[float, list[tuple[float, float]]]:
    """The rate for the next epoch, and the (rate, loss) pairs of the trials."""
    budget = budget_of(settings, len(epochs), minibatches)
    previous = [epoch.rate for epoch in epochs[-settings["numPrevLearnRates"] :]]
    scale = 1.0
    if len(epochs) < settings["numBestSearchEpoch"]:
        length = max(budget // 11, 2)
        grid = _Search(trials, previous[-1] if previous else first, size, length, budget)
        _find_best(grid)
        scale = 1.0 if previous else _share_of_momentum(settings, size, length)
        place = _vertex(grid)
    else:
        length = max(budget // 2, 2)
        rate = previous[-1] if previous else first
        grid = _Search(trials, rate * _annealed(settings["maxEpochs"]), size, length, budget, epochs[-1].loss)
        place = _find_sufficient(grid, epochs[-1].loss)
    return grid.rate(place) * scale, sorted((grid.rate(p) * scale, loss) for p, loss in grid.losses.items())


def _find_best(grid: _Search) -> None:
    """Look for a bracket by factors of 10, and then halve its logarithmic width."""
    grid.loss(0)
    direction = 1 if math.isfinite(grid.losses[0]) else -1
    place = 0.0
    while grid.can_afford():
        place += direction
        if grid.loss(place) > grid.loss(place - direction) and math.isfinite(grid.loss(place - direction)):
            break
    if direction == 1 and grid.best == 0 and grid.can_afford():
        grid.loss(-1)
    width = 0.5
    while grid.can_afford() and width > 0.05:
        center = grid.best
        for place in (center + width, center - width):
            if grid.can_afford():
                grid.loss(place)
        width /= 2


def _vertex(grid: _Search) -> float:
    """The minimum of the parabola through the best trial and its neighbours, if both are there and finite."""
    places = sorted(grid.losses)
    i = places.index(grid.best)
    if not 0 < i < len(places) - 1:
        return grid.best
    (a, b, c), (u, v, w) = places[i - 1 : i + 2], [grid.losses[p] for p in places[i - 1 : i + 2]]
    if not math.isfinite(u + w):
        return b
    slope, curve = (b - a) ** 2 * (v - w) - (b - c) ** 2 * (v - u), (b - a) * (v - w) - (b - c) * (v - u)
    return b - slope / (2 * curve) if curve else b


def _find_sufficient(grid: _Search, last_loss: float) -> float:
    """The place of the largest rate, from the first one downwards, with which the loss does not rise."""
    place = 0.0
    while grid.loss(place) > last_loss and grid.can_afford():
        place += math.log10(_GOLDEN)
    return place


def _annealed(epochs: int) -> float:
    """By how much the rate falls from epoch to epoch: by 0.618 in short trainings, in all to 0.02 in longer ones."""
    return _GOLDEN ** min(1.0, 8 / max(epochs - 1, 1))


def _share_of_momentum(settings: Settings, size: int, length: int) -> float:
    """How far a trial gets that begins without momentum, as a fraction of one that has it.

    A unit-gain filter lets through 1 - m, 1 - m², ... of a constant gradient in the first minibatches.
    """
    constant = settings.momentum.at(0)
    m = math.exp(-size / constant) if constant else 0.0
    return _average([1 - m**i for i in range(1, length + 1)])
