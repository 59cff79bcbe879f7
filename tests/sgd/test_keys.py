"""Each key has the effect that the document describes, here or in the file of the module that it concerns."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD, ConfigError
from cntkjax.sgd.keys import KEYS
from tests.engine.run.test_program import compilations
from tests.sgd.problems import RATE, X, Y, learner_of, new_regression, regression, run_of, trained


def test_rates_sizes_and_momentum_follow_their_schedules():
    history = trained(learningRatesPerSample="0.01*2:0.001", minibatchSize="4:8", maxEpochs=4)[1]
    assert (history.rates, history.minibatch_sizes) == ([0.01, 0.01, 0.001, 0.001], [4, 8, 8, 8])
    assert [e.minibatches for e in history] == [6, 3, 3, 3]
    run = run_of(**RATE, momentumAsTimeConstant="20*1:2500", epochSize=8)
    momentum = []
    with run._checkpoints:
        for epoch in range(2):
            run._train_epoch(epoch)
            momentum.append(learner_of(run).momenta["momentum"].at(0, 0))
    assert momentum == pytest.approx([float(np.float32(math.exp(-1 / tau))) for tau in (20, 2500)], rel=1e-12)


def test_dropoutRate_sets_the_nodes_by_epoch():
    def weights(rate, **block):
        x, y = C.input_variable(3), C.input_variable(1)
        z = C.times(C.layers.Dropout(rate, seed=7)(x), C.parameter((3, 1)))
        return trained(C.squared_error(z, y), **RATE, maxEpochs=2, **block)[0]

    np.testing.assert_array_equal(weights(0.5, dropoutRate=0), weights(0.0))
    np.testing.assert_array_equal(weights(0.1, dropoutRate=0.5), weights(0.5))
    assert not np.array_equal(weights(0.5, dropoutRate="0.5:0"), weights(0.5))
    assert not np.array_equal(weights(0.5), weights(0.0))  # nodes keep their rates without the key


def test_minLearningRatePerSample_ends_training():
    history = trained(learningRatesPerSample="0.01:0.001:0.0001", minLearningRatePerSample=0.0005, maxEpochs=5)[1]
    assert len(history) == 2 and "epoch 3 would have a learning rate per sample of 0.0001" in history.ended_early


def test_disableWkInBatchNormal():
    def scale(**block):
        x, y = C.input_variable(3), C.input_variable(1)
        normalized = C.layers.BatchNormalization()(x)
        z = C.times(normalized, C.parameter((3, 1)))
        trained(C.squared_error(z, y), learningRatesPerSample=1e-6, L2RegWeight=1000, **block)
        return normalized.find_by_name("scale").value, z.parameters[0].value

    regularized, left_out = scale(), scale(disableWkInBatchNormal=True)
    assert (regularized[0] < 0.97).all() and (left_out[0] > 0.99).all()
    for parameter in (regularized, left_out):
        assert np.isfinite(parameter[1]).all()


def test_printed_lines(capsys):
    def lines(**block):
        SGD(maxEpochs=1, minibatchSize=1, **RATE, **block).train(regression(), (X, Y))
        return re.findall(r"Minibatch\[ *(\d+)- *(\d+)\]", capsys.readouterr().out)

    assert lines() == [(str(i), str(i)) for i in range(1, 11)] + [("11", "20")]
    begins = [begin for begin, _ in lines(firstMBsToShowResult=2, numMBsToShowResult=8)]
    assert begins == ["1", "2", "3", "9", "17"]
    assert lines(numMBsToShowResult=0, firstMBsToShowResult=0) == []
    SGD(maxEpochs=1, traceLevel=1, **RATE).train(regression(), (X, Y))
    assert "maxEpochs = 1  # argument maxEpochs" in capsys.readouterr().out


def test_numMBsToCUDAProfile_records_a_profile(tmp_path):
    trained(**RATE, modelPath=tmp_path / "m", numMBsToCUDAProfile=3)
    summary = next((tmp_path / "m.profile").glob("*_summary_.txt")).read_text()
    assert "train" in summary


@pytest.mark.parametrize("block", [
    {"maxTempMemSizeInSamplesForCNN": 100}, {"distributedMBReading": True}, {"useAllDataForPreComputedNode": False}
])
def test_keys_without_effect_are_accepted_and_explained(block):
    (name, _), = block.items()
    np.testing.assert_array_equal(trained(**RATE, **block)[0], trained(**RATE)[0])
    assert re.search(rf"{name} = .* without effect: ", SGD(**block).describe())


def test_nothing_runs_if_a_key_is_missing():
    for block, missing in (({"maxEpochs": 1}, "no learning rate"), (RATE, "no maxEpochs")):
        with pytest.raises(ConfigError, match=missing):
            SGD(**block).train(regression(), (X, Y))


def test_changes_of_rate_and_size_compile_nothing_but_a_program_for_each_size(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    def count(**block):
        return compilations(run_of(*new_regression(), **{"maxEpochs": 4, "epochSize": 24, **RATE, **block}).train)

    fixed = count(minibatchSize=4)
    assert fixed > 0 and count(minibatchSize=4, learningRatesPerSample="0.01:0.02:0.03:0.04") == fixed
    assert count(minibatchSize="4:8") <= fixed + 1


def test_every_key_is_tested():
    names = ("auto_minibatch", "auto_rate", "checkpoints", "criteria", "gradient_check", "keys", "learners", "reader")
    text = "".join(Path(__file__).with_name(f"test_{name}.py").read_text() for name in names)
    assert [key.name for key in KEYS if key.name not in text] == []
