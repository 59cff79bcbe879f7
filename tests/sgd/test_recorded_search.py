"""Searches on CNTK's command line, with the losses of trials in its logs: the rates, sizes and bases of these logs."""

import pytest

from cntkjax.sgd import SGD, Epoch, recorded_search


class Trials:
    """The losses of trials in a log, in their order; what was tried is kept."""

    def __init__(self, *losses):
        self.losses, self.tried = iter(losses), []

    def mini_epoch(self, title, rate, size, samples):
        self.tried.append((title, f"{rate:.8g}", size, samples))
        return next(self.losses)


def epochs(*values):
    return [Epoch(i, 20480, 20, loss, None, rate, 1.0, size) for i, (loss, rate, size) in enumerate(values, 1)]


def test_rates_and_base_criteria_of_ParallelBMWithAdjustLR():
    block = SGD(minibatchSize="64:256:1024", learningRatesPerMB="1.0:0.5:0.1", autoAdjustLR="searchBeforeEpoch",
                numMiniBatch4LRSearch=20, numPrevLearnRates=3).settings
    trained = epochs((3.02444900, 1 / 64, 64), (2.03791679, 0.5 / 256, 256), (1.94906734, 0.1 / 1024, 1024))
    logged = []
    first = Trials(1.91381689, 1.91308005)
    rate, _ = recorded_search.find_rate(first, block, trained, 1024, 20480, logged.append)
    trained += epochs(*[(0, 0, 0)] * 3, (1.86802921, rate, 1024))[3:]
    second = Trials(1.84766700, 1.82753521)
    recorded_search.find_rate(second, block, trained, 1024, 20480, logged.append)
    titles = "BaseAdaptiveLearnRateSearch", "AdaptiveLearnRateSearch"
    for trials, tried in ((first, "0.0039062502"), (second, "0.0063207938")):
        assert trials.tried == [(titles[0], "1e-30", 1024, 1280), (titles[1], tried, 1024, 1280)]
    texts, bases = zip(*(line.split(", baseCriterion=") for line in logged), strict=True)
    best = "SearchForBestLearnRate Epoch[{}]: Best learningRatePerSample = {}"
    assert texts == (best.format(4, "0.003906250186"), best.format(5, "0.006320793777"))
    assert [float(base) for base in bases] == pytest.approx([1.922629502, 1.85275755], abs=4e-9)  # losses have 8 digits


def test_sizes_of_Parallel1BitQuantizationWithAutoMBScaling():
    block = SGD(minibatchSize=64, learningRatesPerSample=1 / 512, autoAdjustMinibatch=True, numMiniBatch4LRSearch=160,
                minibatchSizeTuningMax=8192).settings
    trained = epochs((3.02076286, 1 / 512, 64), (1.84274812, 1 / 512, 64))
    searches = (([2.14296839, 2.14296839, 2.16665035], 8192), ([1.57585658, 1.57585658, 1.61779559], 128))
    for number, (losses, largest) in enumerate(searches, 1):
        logged, trials = [], Trials(*losses)
        assert recorded_search.find_size(trials, block, trained[:number], 1 / 512, 64, logged.append) == 64
        assert [(size, samples) for _, _, size, samples in trials.tried] == [(64, 10240)] * 2 + [(128, 10240)]
        begin = f"AdaptiveMinibatchSearch Epoch[{number + 1}]: "
        trial = f"{begin}Evaluating trial minibatchSize={{}} (search range: 64..{largest})..."
        assert logged[number == 1 :] == [
            f"{begin}Evaluating minibatchSizes 64..{largest}", trial.format(64),
            f"{begin}Computed baseCriterion {losses[0]:.8f} for minibatchSize=64", trial.format(64),
            f"{begin}Keep searching... epochCriterion = {losses[0]:.8f} vs. baseCriterion = {losses[0]:.8f}",
            trial.format(128),
            f"{begin}Search successful. New minibatchSize is 64. epochCriterion = {losses[0]:.8f} vs baseCriterion = "
            f"{losses[0]:.8f}",
        ]
