"""autoAdjustLR: learning rates from trials before each epoch, or from the improvement after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ._trials import JOINED, NO_RATE, Trials
from .history import Epoch
from .settings import BlockSettings

SHARE = 0.2  # of all minibatches, for trials
LATER_SHARE = 0.02  # of an epoch's minibatches, once the best rate is known
_LEAST = 6  # minibatches for trials of a sufficient rate: a trial of one minibatch has no loss after an update
DEFAULT_RATE = 0.1  # per minibatch, where the block gives none
_FEWEST = 7  # minibatches in a trial, unless an epoch is very short: fewer say little about the epoch
_HELD_OUT = 1.5  # minibatches that judge a trial, for each that it was trained on
_BASELINE = 4  # minibatches whose losses tell what a stable loss is
_PROGRESS = 0.98  # of the best trial's: a smaller rate that makes as much is preferred
_RISE, _RISES = 0.5, 12  # the rate rises by a factor of 10 ** 0.5 after each of 12 minibatches, until it diverges
_BELOW = 2.25  # where a search begins: this far below the rate that diverges then, as powers of 10
_WIDTH, _NARROW = 0.5, 0.2  # of a search, as powers of 10: a factor of 3.2, and of 1.6
_FINE = 101  # places between three trials
_ANNEALING = 0.5  # the factor from epoch to epoch in short trainings, once the best rate is known
_GOLDEN = 0.618  # the factor between rates that are tried for a sufficient one
_DIVERGED = 0.5  # a trial ends at a loss by this fraction above that of the baseline
_SPREAD = 2  # and by this many standard deviations of minibatches, where its own loss before is not known
_TOLERANCE = 0.1  # a loss by this fraction above the baseline's is sufficient


def first_rate(settings: BlockSettings, epoch: int, size: int) -> float:
    """The rate of an epoch as the block lists it."""
    return DEFAULT_RATE / size if settings.rates is None else settings.rates.at(epoch)


# ---- adjustAfterEpoch


def criterion_of(settings: BlockSettings, epoch: Epoch) -> float:
    """What controls the rate: the loss or the metric, of the validation data or of the training data."""
    uses_validation = settings["useCVSetControlLRIfCVExists"] and epoch.cv_loss is not None
    loss, metric = (epoch.cv_loss, epoch.cv_metric) if uses_validation else (epoch.loss, epoch.metric)
    value = metric if settings["useEvalCriterionControlLR"] and metric is not None else loss
    return math.inf if value is None or math.isnan(value) else value


def factor_after(settings: BlockSettings, epochs: Sequence[Epoch]) -> float:
    """What the block's rate is multiplied by in the epoch after these."""
    if not epochs or settings["autoAdjustLR"] != "adjustAfterEpoch":
        return 1.0
    improvement = improvement_after(settings, epochs)
    factor = epochs[-1].rate_factor * settings["learnRateDecreaseFactor"] ** epochs[-1].repeats
    if improvement is None:
        return factor
    goes_on = settings["continueReduce"] and _was_reduced(epochs)
    if goes_on or improvement < settings["reduceLearnRateIfImproveLessThan"]:
        return factor * settings["learnRateDecreaseFactor"]
    if improvement > settings["increaseLearnRateIfImproveMoreThan"]:
        return factor * settings["learnRateIncreaseFactor"]
    return factor


def _was_reduced(epochs: Sequence[Epoch]) -> bool:
    """Whether an epoch had a smaller factor than the one before, or has to be repeated with one."""
    fell = (later.rate_factor < earlier.rate_factor for earlier, later in pairwise(epochs))
    return any(epoch.repeats for epoch in epochs) or any(fell)


def improvement_after(settings: BlockSettings, epochs: Sequence[Epoch]) -> float | None:
    """By which fraction the criterion has improved over the last interval.

    None if it is not yet time to look, or nothing is known of the epochs before.

    The criteria of learnRateAdjustInterval epochs are averaged, and compared with the average of those before.
    """
    interval = settings["learnRateAdjustInterval"]
    if len(epochs) < 2 * interval or len(epochs) % interval:
        return None
    criteria = [criterion_of(settings, epoch) for epoch in epochs[-2 * interval :]]
    before, now = (sum(part) / interval for part in (criteria[:interval], criteria[interval:]))
    if not math.isfinite(now):
        return -math.inf
    if not math.isfinite(before):  # unknown, of a model without a checkpoint, or diverged: nothing to compare with
        return None
    return (before - now) / abs(before) if before else math.inf


def epochs_to_repeat(settings: BlockSettings, epochs: Sequence[Epoch]) -> int:
    """How many of the last epochs have made the criterion worse, and are repeated with a smaller rate; 0 if none.

    Source: CNTK's recorded logs of PennTreebank and SLU.
    """
    if settings["autoAdjustLR"] != "adjustAfterEpoch" or not settings["loadBestModel"]:
        return 0
    improvement = improvement_after(settings, epochs)
    return settings["learnRateAdjustInterval"] if improvement is not None and improvement < 0 else 0


# ---- searchBeforeEpoch


def is_due(settings: BlockSettings, epoch: int) -> bool:
    """Whether the rate is searched before an epoch, which counts from 0.

    Where the block lists rates for several epochs, these hold first. Source: CNTK's log of ParallelBMWithAdjustLR.
    """
    listed = 1 if settings.rates is None else settings.rates.epochs
    return settings["autoAdjustLR"] == "searchBeforeEpoch" and (listed == 1 or epoch >= listed)


class _RateSearch:
    """The trials of a search, by their place on a logarithmic grid around the first rate.

    They are compared with a trial without updates, whose loss is `start`. `held_out`: the loss of a trial is that of
    minibatches which no trial was trained on; otherwise that of the second half of its minibatches, each before the
    update with it.
    """

    def __init__(self, trials: Trials, first: float, size: int, length: int, budget: int, held_out: bool) -> None:
        self._trials, self._first, self._size, self._length = trials, first, size, length
        self._judges = JOINED * math.ceil(_HELD_OUT * length / JOINED) if held_out else 0
        self._end = trials.spent + budget
        self._baseline = trials.losses([NO_RATE] * (min(length, _BASELINE) if held_out else length), size)
        self.start = trials.loss_of_others(size, self._judges) if held_out else _second_half(self._baseline)
        self.losses: dict[float, float] = {}

    def rate(self, place: float) -> float:
        """The rate at a place of the grid, whose unit is a factor of 10."""
        return self._first * 10.0**place

    def can_afford(self, minibatches: int = 0) -> bool:
        """Whether there are this many minibatches left, or what another trial needs."""
        needed = minibatches or self._length + self._judges // JOINED
        return self._trials.spent + needed <= self._end

    def limit(self) -> float:
        """The place of a rate that diverges; of the largest that was tried if none does."""
        place = 0.0
        while self.can_afford(_RISES):
            rates = [self.rate(place + i * _RISE) for i in range(_RISES)]
            losses = self._trials.losses(rates, self._size, self._is_stable)
            if len(losses) == _RISES and self._is_stable(losses):
                place += _RISES * _RISE
            elif len(losses) > 3:
                return place + (len(losses) - 2) * _RISE  # of the last update before this loss
            else:  # at once, or with momentum one minibatch later
                place -= 2
        return place

    def loss(self, place: float) -> float:
        """The loss of a trial; infinite if it has diverged."""
        if place not in self.losses:
            losses = self._trials.losses([self.rate(place)] * self._length, self._size, self._is_stable)
            if not losses or not self._is_stable(losses):
                loss = math.inf
            elif self._judges:
                loss = self._trials.loss_of_others(self._size, self._judges)
            else:
                loss = _second_half(losses)
            self.losses[place] = loss if math.isfinite(loss) else math.inf
        return self.losses[place]

    def _is_stable(self, losses: list[float]) -> bool:
        """Whether a trial may go on: its last loss is not far above that of the same minibatch without updates.

        Where that is not known, it is not far above what minibatches have without updates.
        """
        i = len(losses) - 1
        known = self._baseline[i : i + 1]
        base, spread = (known[0], 0.0) if known else (self.start, float(np.std(self._baseline)))
        return math.isfinite(losses[-1]) and losses[-1] <= base + _DIVERGED * abs(base) + _SPREAD * spread

    def is_sufficient(self, place: float) -> bool:
        """Whether a trial does not raise the loss above that of the baseline."""
        return self.loss(place) <= self.start + _TOLERANCE * abs(self.start)

    @property
    def best(self) -> float:
        """The place of the best trial so far; of the smallest rate if all have diverged."""
        return min(self.losses, key=lambda place: (self.losses[place], place))


def _second_half(values: Sequence[float]) -> float:
    return _average(values[len(values) // 2 :])


def _average(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def budget_of(settings: BlockSettings, epoch: int, minibatches: int) -> int:
    """How many of an epoch's minibatches are spent on trials before it.

    In all epochs together these are at most a fifth. Epochs with a sufficient rate need a fiftieth, and have no trials
    if that is too few; what is left goes to those with the best one, at most three fifths of each.
    """
    epochs, best = settings["maxEpochs"], min(settings["numBestSearchEpoch"], settings["maxEpochs"])
    share = later = LATER_SHARE if minibatches * LATER_SHARE >= _LEAST else 0.0
    if epoch < best:
        share = min(3 * SHARE, (SHARE * epochs - later * (epochs - best)) / best)
    return min(settings.search_minibatches, int(minibatches * share + 1e-9))


def range_of(settings: BlockSettings, previous: Sequence[float], first: float) -> tuple[float, float]:
    """The smallest and the largest of the last numPrevLearnRates rates; the first rate if there are none.

    The best rate is searched from the largest on, a sufficient one down to a tenth of the smallest.
    """
    rates = previous[-settings["numPrevLearnRates"] :] or [first]
    return min(rates), max(rates)


def search(
    trials: Trials, settings: BlockSettings, epochs: Sequence[Epoch], first: float, size: int, minibatches: int,
    report: Callable[[str], object],
) -> tuple[float, list[tuple[float, float]]]:
    """The rate for the next epoch, and the (rate, loss) pairs of the trials.

    `first`: where to begin in the first epoch. `minibatches`: of `size` samples in an epoch.
    `report`: gets what is found, in the words of CNTK's logs.
    """
    budget = budget_of(settings, len(epochs), minibatches)
    previous = [epoch.rate for epoch in epochs]
    low, high = range_of(settings, previous, first)
    if len(epochs) < settings["numBestSearchEpoch"] or not previous:
        grid = _RateSearch(trials, high, size, _length_of(budget), budget, held_out=True)
        _find_best(grid)
        place = _cautious(grid)
    else:
        start = previous[-1] * _annealing(settings["maxEpochs"])
        if budget < _LEAST:
            return start, []
        grid = _RateSearch(trials, start, size, budget // 3, budget, held_out=False)
        place = _find_sufficient(grid, math.log10(low / 10 / start))
    report(f"SearchForBestLearnRate Epoch[{len(epochs) + 1}]: Best learningRatePerSample = {grid.rate(place):.10g}, "
           f"baseCriterion={grid.start:.10g}")
    return grid.rate(place), sorted((grid.rate(p), loss) for p, loss in grid.losses.items())


def _length_of(budget: int) -> int:
    """The minibatches of a trial for the best rate: a tenth, or where that is too few, what three trials can have."""
    return max(budget // 10, min(_FEWEST, budget // 7), 1)


def _find_best(grid: _RateSearch) -> None:
    """Look for a bracket below a rate that diverges, and then halve its logarithmic width."""
    start = place = grid.limit() - _BELOW if grid.can_afford(_RISES) else 0.0
    grid.loss(start)
    for step in (_WIDTH, -_WIDTH):
        while grid.can_afford() and grid.loss(place + step) < grid.loss(place):
            place += step
        if place != start:
            break
    width = _WIDTH / 2
    while grid.can_afford() and width > _NARROW:
        center = grid.best
        for neighbour in (center + width, center - width):
            if grid.can_afford():
                grid.loss(neighbour)
        width /= 2


def _cautious(grid: _RateSearch) -> float:
    """The smallest place, between the best trial and its lower neighbour, whose loss falls nearly as far.

    Losses between trials are those of the parabola through the best one and its neighbours, or three at an end. The
    minimum itself would be too large a rate: what is stable for the length of a trial need not be for an epoch.
    """
    places = sorted(place for place, loss in grid.losses.items() if math.isfinite(loss))
    if len(places) < 3:
        return grid.best
    i = min(max(places.index(grid.best), 1), len(places) - 2)
    near = places[i - 1 : i + 2]
    parabola = np.polynomial.Polynomial.fit(near, [grid.losses[place] for place in near], 2)
    fine = np.linspace(near[0], near[-1], _FINE)
    loss = parabola(fine)
    best = int(np.argmin(loss))
    limit = grid.start - _PROGRESS * (grid.start - loss[best])
    return float(fine[:best + 1][loss[:best + 1] <= max(limit, loss[best])][0])


def _find_sufficient(grid: _RateSearch, lowest: float) -> float:
    """The place of the largest rate, from the first one downwards, with which the loss does not rise."""
    place = 0.0
    while not grid.is_sufficient(place) and place > lowest and grid.can_afford():
        place += math.log10(_GOLDEN)
    return place


def _annealing(epochs: int) -> float:
    """The factor of the rate from epoch to epoch: 0.5 in short trainings; in all epochs of longer ones, 0.5 ** 8."""
    return _ANNEALING ** min(1.0, 8 / max(epochs - 1, 1))
