"""The learners of a block: the document's formulae and numbers, with one worker; test_workers.py has two."""

import math
import re

import numpy as np
import pytest

import cntkjax as C
from cntkjax.learners._schedules import momentum_after
from cntkjax.sgd import SGD, _learners
from cntkjax.sgd.keys import METHODS
from tests.sgd.problems import RATE, N, X, Y, gradients, learner_of, regression, run_of, trained


def reference(steps, rate, tau=0.0, nesterov=False, size=4):
    """The document's formulae: G <- (1-mu) sum g + mu G, mu = exp(-size/tau); w <- w - rate G."""
    w, g, mu = np.zeros(3), np.zeros(3), math.exp(-size / tau) if tau else 0.0
    for step in range(steps):
        new = gradients(w, np.arange(step * size, (step + 1) * size) % N).sum(0)
        g = (1 - mu) * new + mu * g
        w = w - rate * ((1 - mu) * new + mu * g if nesterov else g)
    return w


def test_the_update_is_the_documents():
    np.testing.assert_allclose(trained(**RATE)[0], reference(12, 0.01), rtol=1e-4)
    np.testing.assert_allclose(
        trained(**RATE, momentumAsTimeConstant=20)[0], reference(12, 0.01, tau=20), rtol=1e-4
    )
    np.testing.assert_allclose(
        trained(**RATE, momentumAsTimeConstant=20, useNAG=True)[0], reference(12, 0.01, 20, nesterov=True), rtol=1e-4
    )


def test_values_per_minibatch_are_converted_with_the_documents_formulae():
    settings = SGD(minibatchSize="128*2:1024", learningRatesPerMB="1*80:0.1*40:0.01", momentumPerMB=0.9).settings
    assert [settings.rates.at(epoch) for epoch in (0, 1, 2)] == [1 / 128, 1 / 128, 1 / 1024]
    assert settings.rates.at(80) == 0.1 / 1024 and settings.rates.at(120) == 0.01 / 1024
    assert settings.momentum.at(0) == -128 / math.log(0.9) and settings.momentum.at(2) == -1024 / math.log(0.9)
    np.testing.assert_allclose(settings.momentum.at(0), 1215, atol=0.2)  # 1200 in the document's example
    per_minibatch = trained(learningRatesPerMB=0.04, momentumPerMB=0.9)[0]
    per_sample = trained(learningRatesPerSample=0.01, momentumAsTimeConstant=-4 / math.log(0.9))[0]
    np.testing.assert_allclose(per_minibatch, per_sample, rtol=2e-6)  # a time constant is in single precision


def test_the_momentum_of_a_minibatch_is_the_documents():
    """mu = exp(-minibatchSize/momentumAsTimeConstant), whatever the size, but exp(-1/T) is in single precision."""
    momentum = learner_of(run_of(**RATE, momentumAsTimeConstant=2500)).momenta["momentum"]
    for size in (1, 128, 1024):
        assert momentum_after(momentum, 0, 0, size) == pytest.approx(math.exp(-size / 2499.8), rel=1e-5)
    assert momentum_after(momentum, 0, 0, 128) == pytest.approx(0.950085, abs=5e-7)  # CNTK's log of Speech/Simple


def test_a_single_worker_quantizes_its_gradients_in_1_bit_from_its_epoch_on():
    """What it leaves out is added to the next gradient of the same epoch, as in CNTK's log of Simple2d/MultiGpu."""
    x, y = C.input_variable(3, name="x"), C.input_variable(1, name="y")
    loss = C.squared_error(C.reduce_sum(C.parameter(3, init=0) * x), y)
    block = {"parallelizationMethod": "dataParallelSGD", "gradientBits": 1, "parallelizationStartEpoch": 2}
    w = np.zeros(3)
    for epoch in range(3):
        error = np.zeros(3)
        for step in range(6):
            wanted = gradients(w, np.arange(step * 4, (step + 1) * 4)).sum(0) + error
            means = [part.mean() if part.size else 0 for part in (wanted[wanted >= 0], wanted[wanted < 0])]
            sent = np.where(wanted >= 0, *means) if epoch else wanted
            error = wanted - sent
            w = w - 0.01 * sent
    np.testing.assert_allclose(trained(loss, **RATE, **block, maxEpochs=3)[0], w, rtol=1e-4)


def test_without_a_momentum_key_it_is_that_of_cntk():
    loss = regression()
    SGD(**RATE, maxEpochs=2, minibatchSize=4).train(loss, (X, Y), progress_writers=[])
    np.testing.assert_array_equal(loss.parameters[0].value.ravel(), trained(**RATE, momentumPerMB=0.9)[0])
    assert "momentumPerMB = ...  # default; 0.9" in SGD(**RATE).describe()


def test_momentum_counts_the_steps_of_sequences_with_one_label_each():
    lengths, momentum, steps = (3, 1, 4, 2), 0.9, (3 + 1, 4 + 2)
    x, y = C.sequence.input_variable(3, name="x"), C.input_variable(1, name="y")
    loss = C.squared_error(C.sequence.last(C.times(x, C.parameter((3, 1), init=0))), y)
    rows = np.split(X[: sum(lengths)], np.cumsum(lengths)[:-1])
    block = SGD(maxEpochs=3, minibatchSize=6, momentumPerMB=momentum, learningRatesPerSample=0.01)
    history = block.train(loss, (rows, Y[:4]), progress_writers=[])
    assert [(e.samples, e.minibatches) for e in history] == [(4, 2)] * 3
    w, g, last = np.zeros(3), np.zeros(3), np.cumsum(lengths) - 1
    for step in range(6):
        two = last[:2] if step % 2 == 0 else last[2:]
        targets = Y[:2, 0] if step % 2 == 0 else Y[2:4, 0]
        new = (2 * (X[two] @ w - targets)[:, None] * X[two]).sum(0)
        mu = momentum ** (steps[step % 2] / 6)
        g = (1 - mu) * new + mu * g
        w = w - 0.01 * g
    np.testing.assert_allclose(loss.parameters[0].value.ravel(), w, rtol=1e-5)


def test_momentum_of_fsadagrad_counts_the_samples_of_the_loss():
    """As CNTK's log of the example G2P shows: with time steps its second minibatch is off by 2e-4."""
    def loss():
        x, y = C.sequence.input_variable(3, name="x"), C.input_variable(1, name="y")
        return C.squared_error(C.sequence.last(C.times(x, C.parameter((3, 1), init=0))), y)

    block, model = loss(), loss()
    rows, targets = [X[:3], X[3:5]], Y[:2]
    SGD(maxEpochs=3, minibatchSize=5, momentumAsTimeConstant=4, gradUpdateType="fsAdaGrad", **RATE).train(
        block, (rows, targets), progress_writers=[]
    )
    rate, momentum = C.learning_parameter_schedule_per_sample(0.01), C.momentum_as_time_constant_schedule(4)
    trainer = C.Trainer(None, (model, None), [C.fsadagrad(model.parameters, rate, momentum)])
    for _ in range(3):
        trainer.train_minibatch(dict(zip(model.arguments, (rows, targets), strict=True)))
    np.testing.assert_allclose(block.parameters[0].value, model.parameters[0].value, rtol=1e-6)


@pytest.mark.parametrize(("block", "learner"), [
    ({}, lambda p, r: C.sgd(p, r)),
    ({"gradUpdateType": "None", "momentumPerMB": 0.5},
     lambda p, r: C.momentum_sgd(p, r, C.momentum_schedule(0.5, minibatch_size=4))),
    ({"gradUpdateType": "adagrad"}, lambda p, r: C.adagrad(p, r)),
    ({"gradUpdateType": "AdaGrad", "normWithAveMultiplier": False}, lambda p, r: C.adagrad(p, r, False)),
    ({"gradUpdateType": "rmsProp"}, lambda p, r: C.rmsprop(p, r, 0.99, 1.2, 0.75, 10, 0.1)),
    ({"gradUpdateType": "rmsProp", "rms_gamma": 0.9, "rms_wgt_inc": 1.5, "rms_wgt_dec": 0.5, "rms_wgt_max": 2,
      "rms_wgt_min": 0.3, "normWithAveMultiplier": False}, lambda p, r: C.rmsprop(p, r, 0.9, 1.5, 0.5, 2, 0.3, False)),
    ({"gradUpdateType": "fsAdaGrad", "momentumAsTimeConstant": 30},
     lambda p, r: C.fsadagrad(p, r, C.momentum_as_time_constant_schedule(30))),
    ({"L2RegWeight": 0.1}, lambda p, r: C.sgd(p, r, l2_regularization_weight=0.1)),
    ({"L1RegWeight": 0.1}, lambda p, r: C.sgd(p, r, l1_regularization_weight=0.1)),
    ({"gaussianNoiseInjectStd": 0.1}, lambda p, r: C.sgd(p, r, gaussian_noise_injection_std_dev=0.1)),
    ({"clippingThresholdPerSample": 0.5}, lambda p, r: C.sgd(p, r, gradient_clipping_threshold_per_sample=0.5)),
    ({"clippingThresholdPerSample": 0.5, "gradientClippingWithTruncation": False},
     lambda p, r: C.sgd(p, r, gradient_clipping_threshold_per_sample=0.5, gradient_clipping_with_truncation=False)),
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "")
def test_gradient_control_is_that_of_the_learners(block, learner):
    C.cntk_py.set_fixed_random_seed(1)
    weights = trained(**RATE, maxEpochs=1, **block)[0]
    C.cntk_py.set_fixed_random_seed(1)
    loss = regression()
    trainer = C.Trainer(None, (loss, None), [learner(loss.parameters, C.learning_parameter_schedule_per_sample(0.01))])
    for i in range(0, N, 4):
        trainer.train_minibatch(dict(zip(loss.arguments, (X[i : i + 4], Y[i : i + 4]), strict=True)))
    np.testing.assert_allclose(weights, loss.parameters[0].value.ravel(), rtol=1e-6)


def test_the_methods_of_parallelTrain(capsys, monkeypatch):
    real = _learners.data_parallel_distributed_learner
    alone = trained(**RATE)[0]
    for method in METHODS:
        weights, _ = trained(**RATE, parallelizationMethod=method, blockSize=8, syncPerfStats=2)
        np.testing.assert_allclose(weights, alone, rtol=1e-6)
        assert len(re.findall(r"samples/s of 1 workers, .* ms per minibatch", capsys.readouterr().out)) == 6
    strategy = learner_of(run_of(**RATE, parallelizationMethod="blockMomentumSGD", blockSize=8, epochSize=12,
                                 blockMomentumAsTimeConstant=16, useNesterovMomentum=False, resetSGDMomentum=False,
                                 blockLearningRate=0.5, parallelizationStartEpoch=3)).strategy
    assert (strategy.size, strategy.time_constant, strategy.nesterov) == (8, 16, False)
    assert (strategy.resets_momentum, strategy.rate, strategy.after) == (False, 0.5, 24)
    calls = []
    monkeypatch.setattr(_learners, "data_parallel_distributed_learner", lambda *a: calls.append(a) or real(*a))
    run_of(**RATE, parallelizationMethod="dataParallelSGD", gradientBits=3)
    run_of(**RATE, parallelizationMethod="dataParallelSGD", useBufferedAsyncGradientAggregation=True)
    assert [call[2] for call in calls[:2]] == [4, 32]
    run_of(**RATE, parallelizationMethod="dataParallelSGD", parallelizationStartEpoch=2)  # an epoch is a sweep
    assert calls[-1][1] == N


def test_asynchronous_training_reaches_its_rate_in_steps():
    """The example of CNTK's page: a fifth of the rate, and another fifth after each adjustNBMiniBatch minibatches."""
    run = run_of(**RATE, parallelizationMethod="dataParallelASGD", adjustCoefficient=0.4, adjustNBMiniBatch=2,
                 usePipeline=True, maxEpochs=1, minibatchSize=3)
    rates, set_rate = [], run._set_rate
    run._set_rate = lambda rate: (rates.append(rate), set_rate(rate))
    run.train()
    rate = run._history.rates[0]
    assert rates[1:7] == pytest.approx([0.4 * rate, 0.4 * rate, 0.8 * rate, 0.8 * rate, rate, rate])
