"""Each key has the effect that the document describes; a test for every row of the table."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.learners._schedules import momentum_after
from cntkjax.sgd import SGD, ConfigError, _learners
from cntkjax.sgd.keys import KEYS
from tests.engine.run.test_program import compilations

from .problems import N, X, Y, gradients, learner_of, new_regression, regression, run_of, trained

RATE = {"learningRatesPerSample": 0.01}


def reference(steps, rate, tau=0.0, nesterov=False, size=4):
    """The document's formulae: G <- (1-mu) sum g + mu G, mu = exp(-size/tau); w <- w - rate G."""
    w, g, mu = np.zeros(3), np.zeros(3), math.exp(-size / tau) if tau else 0.0
    for step in range(steps):
        new = gradients(w, np.arange(step * size, (step + 1) * size) % N).sum(0)
        g = (1 - mu) * new + mu * g
        w = w - rate * ((1 - mu) * new + mu * g if nesterov else g)
    return w


# ---- the document's formulae and numbers


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


# ---- process control


def test_epochs_have_epochSize_samples_or_are_sweeps():
    history = trained(**RATE, epochSize=10, maxEpochs=3, minibatchSize=4)[1]
    assert [(e.samples, e.minibatches) for e in history] == [(10, 3)] * 3
    assert [(e.samples, e.minibatches) for e in trained(**RATE, maxEpochs=3, minibatchSize=5)[1]] == [(24, 5)] * 3


@pytest.mark.parametrize(("size", "epochs"), [
    (0, [(24, 3)] * 3), (16, [(16, 2)] * 3), (10, [(10, 1), (10, 1), (10, 2)])
])
def test_minibatches_of_a_file_end_with_the_epoch(tmp_path, size, epochs):
    path = tmp_path / "data.ctf"
    rows = [f"|x {' '.join(map(str, x))} |y {y[0]}" for x, y in zip(X, Y, strict=True)]
    path.write_text("\n".join(rows) + "\n")
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 3), y=C.io.StreamDef("y", 1))
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(path), streams), randomize=False)
    weights, history = trained(None, source, **RATE, epochSize=size, maxEpochs=3, minibatchSize=10)
    assert [(e.samples, e.minibatches) for e in history] == epochs
    assert source.get_checkpoint_state() == {"minibatchSourcePosition": sum(n for n, _ in epochs)}
    expected = trained(None, (X, Y), **RATE, epochSize=size, maxEpochs=3, minibatchSize=10)[0]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


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


def test_modelPath_and_keepCheckPointFiles(tmp_path):
    loss = regression()
    trained(loss, **RATE, maxEpochs=3, modelPath=tmp_path / "a" / "m")
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == ["m", "m.1", "m.2", "m.3", "m.3.ckp"]
    model = C.load_model(tmp_path / "a" / "m")
    np.testing.assert_array_equal(model.find_by_name("w").value, loss.find_by_name("w").value)
    trained(**RATE, maxEpochs=2, modelPath=tmp_path / "b" / "m", keepCheckPointFiles=True)
    assert sorted(f.name for f in (tmp_path / "b").iterdir()) == ["m", "m.1", "m.1.ckp", "m.2", "m.2.ckp"]


def test_saveBestModelPerCriterion_keeps_the_epoch_that_is_best_on_validation_data(tmp_path):
    loss = regression()
    error = C.abs(C.minus(*loss.root_function.inputs[:2]), name="error")
    block = SGD(**RATE, maxEpochs=6, modelPath=tmp_path / "m", saveBestModelPerCriterion=True)
    history = block.train((loss, error), (X, Y), cv_source=(X[:6], -Y[:6]), progress_writers=[])
    names = {"loss": [e.cv_loss for e in history], "error": [e.cv_metric for e in history]}
    assert any(values.index(min(values)) < 5 for values in names.values())
    for name, values in names.items():
        best = values.index(min(values)) + 1
        assert history.best()[name].number == best
        copied, kept = (C.load_model(tmp_path / file) for file in (f"m_{name}", f"m.{best}"))
        np.testing.assert_array_equal(copied.find_by_name("w").value, kept.find_by_name("w").value)


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


def test_dropoutRate_sets_the_nodes_by_epoch():
    def weights(rate, **block):
        x, y = C.input_variable(3), C.input_variable(1)
        z = C.times(C.layers.Dropout(rate, seed=7)(x), C.parameter((3, 1)))
        return trained(C.squared_error(z, y), **RATE, maxEpochs=2, **block)[0]

    np.testing.assert_array_equal(weights(0.5, dropoutRate=0), weights(0.0))
    np.testing.assert_array_equal(weights(0.1, dropoutRate=0.5), weights(0.5))
    assert not np.array_equal(weights(0.5, dropoutRate="0.5:0"), weights(0.5))
    assert not np.array_equal(weights(0.5), weights(0.0))  # nodes keep their rates without the key


def test_truncated_needs_a_source_that_cuts_sequences(tmp_path):
    (tmp_path / "d.ctf").write_text("".join(f"{i} |x {t}\n" for i in range(4) for t in range(6)))
    stream = C.io.StreamDefs(x=C.io.StreamDef("x", 1))

    def train(length, **block):
        source = C.io.MinibatchSource(C.io.CTFDeserializer(str(tmp_path / "d.ctf"), stream), truncation_length=length)
        x = C.sequence.input_variable(1, name="x")
        h = C.layers.Recurrence(C.layers.RNNStep(2))(x)
        loss = C.squared_error(C.times(h, C.parameter((2, 1))), x)
        return SGD(maxEpochs=1, minibatchSize=3, epochSize=24, **RATE, **block).train(loss, source, progress_writers=[])

    assert train(3, truncated=True)[0].minibatches > train(0)[0].minibatches
    with pytest.raises(ConfigError, match="truncated = true needs a source that cuts sequences"):
        train(0, truncated=True)
    with pytest.raises(ConfigError, match="the source cuts sequences, but truncated = false"):
        train(3)


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


# ---- gradients


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


def test_gradientCheck_compares_gradients_in_sigFigs_digits():
    data = (X.astype(np.float64), Y.astype(np.float64))
    trained(regression(np.float64), data, **RATE, gradientCheck=True, sigFigs=6)

    class Wrong(C.ops.functions.UserFunction):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, argument

        def backward(self, state, root_gradients):
            return 1.01 * root_gradients

        def infer_outputs(self):
            return [C.output_variable((1,), np.float64, self.inputs[0].dynamic_axes)]

    x, y = C.input_variable(3, dtype=np.float64), C.input_variable(1, dtype=np.float64)
    z = C.user_function(Wrong([C.times(x, C.parameter((3, 1), init=1, dtype=np.float64)).output]))
    with pytest.raises(RuntimeError, match=r"3 of the gradients differ in the first 6 digits"):
        trained(C.squared_error(z, y), data, **RATE, gradientCheck=True)
    trained(C.squared_error(z, y), data, **RATE, gradientCheck=True, sigFigs=1)


# ---- display


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


# ---- parallel training, with one worker; test_workers.py has two


def test_the_methods_of_parallelTrain(capsys, monkeypatch):
    real = _learners.data_parallel_distributed_learner
    alone = trained(**RATE)[0]
    for method in ("dataParallelSGD", "blockMomentumSGD", "modelAveragingSGD"):
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
    run_of(**RATE, parallelizationMethod="dataParallelSGD", gradientBits=2)
    with pytest.raises(RuntimeError, match="asynchronous"):
        run_of(**RATE, parallelizationMethod="dataParallelSGD", useBufferedAsyncGradientAggregation=True)
    assert [call[2:] for call in calls[:2]] == [(16, False), (32, True)]  # in 32, 16 or 1 bits
    run_of(**RATE, parallelizationMethod="dataParallelSGD", parallelizationStartEpoch=2)  # an epoch is a sweep
    assert calls[-1][1] == N


def test_nothing_runs_if_a_key_is_missing():
    for block, missing in (({"maxEpochs": 1}, "no learning rate"), (RATE, "no maxEpochs")):
        with pytest.raises(ConfigError, match=missing):
            SGD(**block).train(regression(), (X, Y))


def test_the_end_of_the_data_is_reported():
    loss = regression()
    source = C.io.MinibatchSourceFromData({"x": X, "y": Y}, max_samples=30)
    with pytest.raises(RuntimeError, match="the data ended before epoch 3"):
        SGD(maxEpochs=3, minibatchSize=4, **RATE).train(loss, source, progress_writers=[])


def test_changes_of_rate_and_size_compile_nothing_but_a_program_for_each_size(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    def count(**block):
        return compilations(run_of(*new_regression(), **{"maxEpochs": 4, "epochSize": 24, **RATE, **block}).train)

    fixed = count(minibatchSize=4)
    assert fixed > 0 and count(minibatchSize=4, learningRatesPerSample="0.01:0.02:0.03:0.04") == fixed
    assert count(minibatchSize="4:8") <= fixed + 1


def test_every_key_is_tested():
    text = "".join(Path(__file__).with_name(name).read_text() for name in ("test_keys.py", "test_automatic.py"))
    assert [key.name for key in KEYS if key.name not in text] == []
