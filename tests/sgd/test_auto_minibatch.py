"""Automatic sizes of minibatches."""

from cntkjax.sgd import SGD, auto_minibatch
from tests.sgd.problems import many, trained


def test_when_sizes_are_searched():
    settings = SGD(autoAdjustMinibatch=True, minibatchSize="256:1024", minibatchSizeTuningFrequency=3).settings
    assert [epoch for epoch in range(10) if auto_minibatch.is_due(settings, epoch)] == [2, 5, 8]
    assert not any(auto_minibatch.is_due(SGD(minibatchSize="256:1024").settings, epoch) for epoch in range(9))


def sized(**block):
    return trained(None, many(), **{"learningRatesPerSample": 0.003, "autoAdjustMinibatch": True, "minibatchSize": 5,
                                    "maxEpochs": 4, **block})[1]


def test_larger_minibatches_reach_the_loss_in_fewer_updates():
    fixed, enlarged = sized(autoAdjustMinibatch=False), sized()
    assert enlarged.minibatch_sizes[0] == 5 < enlarged.minibatch_sizes[-1]
    assert enlarged[-1].loss <= 1.01 * fixed[-1].loss
    assert sum(e.minibatches for e in enlarged) < 0.6 * sum(e.minibatches for e in fixed)


def test_limits_of_the_sizes():
    assert sized(minibatchSizeTuningMax=12).minibatch_sizes == [5, 10, 10, 10]
    assert sized(minibatchSizeTuningFrequency=5).minibatch_sizes[:3] == [5, *[sized().minibatch_sizes[1]] * 2]
    sizes = [sized(minibatchSearchCriterionErrorMargin=margin).minibatch_sizes[1] for margin in (0, 1, 1000)]
    assert sizes[0] <= sizes[1] <= sizes[2] and sizes[0] < sizes[2]
    assert sized(numMiniBatch4LRSearch=4, minibatchSearchCriterionErrorMargin=1000).minibatch_sizes[1] == 10
