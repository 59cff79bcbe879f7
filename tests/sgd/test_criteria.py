"""Criteria are found among the nodes of a model."""

import pytest

import cntkjax as C
from cntkjax.sgd import SGD, ConfigError
from tests.sgd.problems import RATE, X, Y, regression, trained


def test_criterion_nodes_are_found_by_name():
    loss = regression()
    other = C.abs(C.minus(*loss.root_function.inputs[:2]), name="metric")
    both = C.combine([C.reduce_sum(other, name="sum"), loss, other])
    _, history = trained(both, **RATE, trainCriterionNodeName="loss", evalCriterionNodeName="metric")
    assert history.losses == trained(**RATE)[1].losses
    assert history[1].metric < history[0].metric
    with pytest.raises(ConfigError, match="trainCriterionNodeName = lss: .* no node of this name; did you mean loss"):
        trained(both, **RATE, trainCriterionNodeName="lss")
    with pytest.raises(ValueError, match="the criterion has 3 outputs"):
        trained(both, **RATE)


def test_a_metric_that_the_loss_does_not_depend_on_is_found_by_name():
    loss = regression()
    metric = C.reduce_sum(C.abs(C.minus(*loss.root_function.inputs[:2])), name="metric")
    block = SGD(maxEpochs=2, minibatchSize=16, evalCriterionNodeName="metric", **RATE)
    history = block.train((loss, metric), (X, Y), progress_writers=[])
    assert history[1].metric < history[0].metric
