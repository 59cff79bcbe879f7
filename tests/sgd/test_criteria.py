"""Criteria are found among the nodes of a model."""

import pytest

import cntkjax as C
from cntkjax.sgd import ConfigError
from tests.sgd.problems import RATE, regression, trained


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
