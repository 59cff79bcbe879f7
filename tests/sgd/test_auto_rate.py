"""Automatic learning rates: from the improvement after each epoch, or from trials before it."""

import itertools
import math
import re

import numpy as np
import pytest

from cntkjax.sgd import SGD, auto_rate
from tests.sgd.problems import X, Y, epochs_of, many, regression, searched, trained


def after(losses, factors=None, cv_loss=None, metric=None, **block):
    """The factor after these epochs, and the epoch to which training returns."""
    settings = SGD(autoAdjustLR="adjustAfterEpoch", **block).settings
    fields = {name: values for name, values in (("cv_loss", cv_loss), ("cv_metric", metric)) if values}
    epochs = epochs_of(losses, factors, **fields)
    repeated = auto_rate.epochs_to_repeat(settings, epochs)
    return auto_rate.factor_after(settings, epochs), len(epochs) - repeated if repeated else None


@pytest.mark.parametrize(("losses", "block", "factor", "loaded"), [
    ([1.0], {}, 1.0, None),
    ([1.0, 0.9], {}, 1.0, None),
    ([1.0, 1.1], {}, 0.618, 1),
    ([1.0, 0.9, math.nan], {}, 0.618, 2),
    ([1.0, 1.1], {"loadBestModel": False}, 0.618, None),
    ([1.0, 1.1], {"learnRateDecreaseFactor": 0.5}, 0.5, 1),
    ([1.0, 0.96], {"reduceLearnRateIfImproveLessThan": 0.05}, 0.618, None),
    ([1.0, 0.94], {"reduceLearnRateIfImproveLessThan": 0.05}, 1.0, None),
    ([1.0, 0.8], {"increaseLearnRateIfImproveMoreThan": 0.1}, 1.382, None),
    ([1.0, 0.8], {"increaseLearnRateIfImproveMoreThan": 0.1, "learnRateIncreaseFactor": 2}, 2.0, None),
    ([math.inf, 0.8], {"increaseLearnRateIfImproveMoreThan": 1e9}, 1.0, None),
    ([1.0, 0.5, 1.1], {"learnRateAdjustInterval": 2}, 1.0, None),
    ([1.0, 0.5, 1.1, 0.6], {"learnRateAdjustInterval": 2}, 0.618, 2),
    ([1.0, 0.5, 0.6, 0.7], {"learnRateAdjustInterval": 2}, 1.0, None),
])
def test_adjustAfterEpoch(losses, block, factor, loaded):
    assert after(losses, **block) == (factor, loaded)


def test_adjustments_accumulate():
    assert after([1.0, 1.1, 1.2], [1.0, 1.0, 0.618])[0] == 0.618**2


def test_continueReduce_goes_on_reducing_a_rate_that_was_reduced_once():
    assert after([1.0, 0.9, 0.8], continueReduce=True)[0] == 1.0
    assert after([1.0, 0.9, 0.8], [1.0, 1.0, 0.618], continueReduce=True)[0] == 0.618**2
    assert after([1.0, 0.9, 0.8], [1.0, 1.0, 0.618])[0] == 0.618


def test_which_criterion_controls_the_rate():
    better, worse = [1.0, 0.9], [1.0, 1.1]
    assert after(better, cv_loss=worse)[0] == 0.618
    assert after(better, cv_loss=worse, useCVSetControlLRIfCVExists=False)[0] == 1.0
    assert after(worse, cv_loss=worse, metric=better, useEvalCriterionControlLR=True)[0] == 1.0


def test_a_run_that_adjusts_returns_to_the_best_model():
    """A rate that diverges is reduced, from the model of the best epoch, until the loss falls."""
    rate, limit = 0.12, 0.12 * 0.618
    block = {"learningRatesPerSample": rate, "autoAdjustLR": "adjustAfterEpoch", "maxEpochs": 14, "minibatchSize": 8}
    weights, history = trained(**block)
    assert min(history.rates) < limit and history[-1].loss < 0.1 * history[0].loss
    worse = [e for a, e in zip(history.epochs, history.epochs[1:], strict=False) if e.loss > a.loss]
    assert all(history[e.number].rate == pytest.approx(0.618 * e.rate) for e in worse if e.number < 14)
    assert np.isfinite(weights).all()


def test_epochs_that_are_repeated_are_printed_with_their_numbers(capsys):
    block = {"learningRatesPerSample": 0.12, "autoAdjustLR": "adjustAfterEpoch", "maxEpochs": 4, "minibatchSize": 8}
    SGD(**block, momentumAsTimeConstant=0).train(regression(), (X, Y), cv_source=(X, Y))
    printed = re.findall(r"Finished E\w+ ?\[(\d+)", capsys.readouterr().out)
    trained, tested = printed[::2], printed[1::2]
    assert trained == tested and trained[0] == "1" and trained[-1] == "4" and len(trained) > 4
    assert all(int(after) - int(before) in (0, 1) for before, after in itertools.pairwise(trained))


def test_the_criterion_on_validation_data():
    history = SGD(learningRatesPerSample=0.01, maxEpochs=2, minibatchSize=4).train(
        regression(), (X, Y), cv_source=(X[:5], Y[:5]), progress_writers=[]
    )
    loss = regression()
    SGD(learningRatesPerSample=0.01, maxEpochs=1, minibatchSize=4).train(loss, (X, Y), progress_writers=[])
    expected = np.mean(loss.eval({loss.arguments[0]: X[:5], loss.arguments[1]: Y[:5]}))
    assert history[0].cv_loss == pytest.approx(expected, rel=1e-5)
    assert history[1].cv_loss < history[0].cv_loss


def test_tests_on_validation_data_are_reported(capsys):
    def train(**block):
        block = SGD(**{"learningRatesPerSample": 0.01, "maxEpochs": 1, "minibatchSize": 4, "epochSize": 24, **block})
        loss = regression()
        history = block.train((loss, loss), (X, Y), cv_source=(X[:5], Y[:5]))
        return history, capsys.readouterr().out

    history, output = train()
    assert f"Finished Evaluation [1]: Minibatch[1-2]: metric = {100 * history[0].cv_metric:.2f}% * 5" in output
    assert f"Validation loss: {history[0].cv_loss}" in output
    output = train(autoAdjustLR="searchBeforeEpoch", maxEpochs=2)[1]
    assert output.count("Finished Evaluation") == 2 and output.count("* 5;") == 2  # trials are not reported


@pytest.mark.parametrize("first", [1e-4, 1e-2, 1.0, 100.0])
def test_a_search_needs_no_good_first_rate(first):
    block = {"maxEpochs": 3, "minibatchSize": 10, "momentumPerMB": 0.5}
    rates = (0.001, 0.003, 0.01, 0.03)
    losses = [trained(None, many(), learningRatesPerSample=rate, **block)[1][2].loss for rate in rates]
    history = searched(first)[1]
    assert history[2].loss <= 1.1 * min(losses)
    assert 0.002 < history.rates[0] < 0.1
    assert sum(e.search_minibatches for e in history) <= 0.2 * sum(e.minibatches for e in history)


class Curve:
    """Held-out losses by rate, as trials on data would have them; the loss without updates is 5."""

    spent = 0.0

    def __init__(self, loss, noise=0.0):
        self.loss, self.noise = loss, noise

    def losses(self, rates, size, go_on=lambda losses: True):
        self.rate, losses = rates[-1], []
        for i in range(len(rates)):
            losses.append(5 + self.noise * (-1) ** i)
            if not go_on(losses):
                break
        self.spent += len(losses)
        return losses

    def loss_of_others(self, size, minibatches):
        return self.loss(self.rate)


def place_of(losses, noise=0.0):
    """The place that a search chooses after trials with these losses, by places, when 5 is the loss without updates."""
    curve = Curve(lambda rate: losses.get(round(math.log10(rate), 2), 5.0), noise)
    grid = auto_rate._RateSearch(curve, 1.0, 10, 8, 10**6, held_out=True)
    for place in losses:
        grid.loss(place)
    return auto_rate._cautious(grid)


def test_a_smaller_rate_is_chosen_if_it_makes_nearly_the_same_progress():
    assert -0.2 < place_of({-0.5: 2.0, 0.0: 1.0, 0.5: 2.0}) < -0.05  # the minimum is at 0
    assert place_of({-0.5: 1.01, 0.0: 1.0, 0.5: 1.01}) == -0.5
    assert place_of({0.0: 1.0, 0.5: 2.0, 1.0: 3.0}) == 0.0  # no smaller rate was tried
    assert 0.8 < place_of({0.0: 3.0, 0.5: 2.0, 1.0: 1.0}) < 1.0


def test_a_trial_of_minibatches_that_differ_much_is_not_taken_for_one_that_diverges():
    losses = {-0.5: 2.0, 0.0: 1.0, 0.5: 2.0}
    assert place_of(losses, noise=2.4) == place_of(losses)


def test_an_epoch_too_short_to_look_for_a_rate_that_diverges_begins_with_the_rate_of_the_block():
    history = trained(learningRatesPerSample=0.01, autoAdjustLR="searchBeforeEpoch", maxEpochs=1)[1]
    assert history[0].minibatches == 6 and history.rates == pytest.approx([0.01])


def test_epochs_that_are_too_short_for_trials_have_none():
    history = searched(0.01, epochSize=200, numMiniBatch4LRSearch=3)[1]
    assert len(history[0].trials) == 1 and not history[1].trials
    assert history.rates[1:] == pytest.approx([0.5 * history.rates[0], 0.25 * history.rates[0]])


def test_what_a_search_spends():
    shares = []
    for block in ({}, {"maxEpochs": 1}, {"maxEpochs": 10}, {"numBestSearchEpoch": 3}, {"numBestSearchEpoch": 0}):
        settings = SGD(**{"maxEpochs": 3, **block}).settings
        budgets = [auto_rate.budget_of(settings, epoch, 1000) for epoch in range(settings["maxEpochs"])]
        assert sum(budgets) <= 200 * len(budgets)
        shares.append(budgets[:2])
    assert shares == [[500, 20], [200], [500, 20], [200, 200], [20, 20]]
    short = [auto_rate.budget_of(SGD(maxEpochs=3).settings, epoch, 90) for epoch in range(3)]
    assert short == [54, 0, 0]  # a fiftieth would be too few for a trial
    assert auto_rate.budget_of(SGD(maxEpochs=3, numMiniBatch4LRSearch=30).settings, 0, 1000) == 30
    in_samples = SGD(maxEpochs=3, numSamples4Search=650, minibatchSize="32:64").settings
    assert auto_rate.budget_of(in_samples, 0, 1000) == 20


def test_numBestSearchEpoch_and_numPrevLearnRates():
    history = searched(0.01, numBestSearchEpoch=1, minibatchSize=5)[1]
    assert len(history[0].trials) > 3 and len(history[1].trials) == 1
    assert history.rates[1] == pytest.approx(0.5 * history.rates[0])
    assert len(searched(0.01, numBestSearchEpoch=2, numPrevLearnRates=1)[1][1].trials) > 3
    settings = SGD(maxEpochs=3, numPrevLearnRates=2).settings
    assert auto_rate.range_of(settings, [0.5, 0.1, 0.3], 1.0) == (0.1, 0.3)
    assert auto_rate.range_of(settings, [], 1.0) == (1.0, 1.0)
