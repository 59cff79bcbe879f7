"""Trials: short trainings that leave no trace."""

import numpy as np

from tests.engine.run.test_program import compilations
from tests.sgd.problems import many, new_regression, run_of, searched, trained


def test_trials_leave_no_trace():
    """After its search an epoch trains as it does with the rate that was found."""
    weights, history = searched(0.01, maxEpochs=1, numMiniBatch4LRSearch=20)
    again, _ = trained(None, many(), learningRatesPerSample=history.rates[0], maxEpochs=1, minibatchSize=10,
                       momentumPerMB=0.5)
    np.testing.assert_array_equal(weights, again)


def test_a_search_compiles_the_evaluation_of_its_trials_only(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    block = {"minibatchSize": 4, "epochSize": 24, "maxEpochs": 3}
    fixed = compilations(run_of(*new_regression(), learningRatesPerSample=0.01, **block).train)
    search = run_of(*new_regression(), learningRatesPerSample=1e-4, autoAdjustLR="searchBeforeEpoch", **block)
    assert 0 < compilations(search.train) <= fixed + 1
