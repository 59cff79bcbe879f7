"""Conversion between flax modules and Functions."""

import jax
import numpy as np
import optax
import pytest

import cntkjax as C
from cntkjax.interop import leaf_names

nn = pytest.importorskip("flax.linen", reason="flax is an extra")
F = np.float32


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


class Small(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(nn.Dense(4)(x))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


def test_a_module_computes_the_same_as_a_function():
    x = C.input_variable(3)
    module = Small()
    variables = module.init(jax.random.key(1), sample(1, 3))
    model = C.interop.from_flax(module, x, variables, training="train")
    data = sample(5, 3)
    assert np.allclose(model.eval({x: data}), module.apply(variables, data), atol=1e-6)
    names = {p.name: p.shape for p in model.parameters}
    assert names["Dense_0.kernel"] == (3, 4) and names["BatchNorm_0.scale"] == (4,) and len(names) == 6


def test_a_module_trains_with_cntks_learners_and_keeps_its_statistics():
    x, y = C.input_variable(3), C.input_variable(2)
    model = C.interop.from_flax(Small(), x, training="train")
    mean = next(c for c in model.constants if c.name == "batch_stats.BatchNorm_0.mean")
    loss = C.squared_error(model, y)
    trainer = C.Trainer(model, (loss,), [C.learners.from_optax(model.parameters, optax.adam(0.02))])
    losses = []
    for seed in range(100):
        data = sample(32, 3, seed=seed) + 1
        trainer.train_minibatch({x: data, y: data[:, :2]})
        losses.append(trainer.previous_minibatch_loss_average)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    assert np.abs(mean.value).max() > 0.1


def test_an_inverted_training_keyword():
    x = C.input_variable(1000)
    model = C.interop.from_flax(nn.Dropout(0.5), x, training="deterministic", inverted=True)
    ones = np.ones((1, 1000), F)
    assert np.array_equal(model.eval({x: ones}), ones)
    _, outputs = model.forward({x: ones}, keep_for_backward=set(model.outputs))
    assert set(np.unique(outputs[model.output])) == {0, 2}


def test_a_function_is_a_module():
    x = C.input_variable(3)
    model = C.layers.Sequential([C.layers.Dense(4, activation=C.tanh), C.layers.Dense(2)])(x)
    module = C.interop.to_flax(model)
    data = sample(5, 3)
    variables = module.init(jax.random.key(0), data)
    assert {n: v.shape for n, v in variables["params"].items()} == {
        n: p.shape for n, p in leaf_names(model.parameters).items()}
    assert np.allclose(jax.jit(module.apply)(variables, data), model.eval(data), atol=1e-6)


def test_statistics_and_dropout_of_a_function_in_flax():
    x = C.input_variable(3)
    model = C.layers.Sequential([C.layers.BatchNormalization(), C.layers.Dropout(0.5)])(x)
    module = C.interop.to_flax(model)
    data = sample(50, 3) + 2
    variables = module.init(jax.random.key(0), data)
    outputs, changed = module.apply(
        variables, data, training=True, rngs={"dropout": jax.random.key(1)}, mutable=["batch_stats"])
    assert 0.3 < np.mean(np.asarray(outputs) == 0) < 0.7
    assert np.allclose(changed["batch_stats"]["aggregate_mean"], data.mean(0), rtol=1e-4)
    assert not np.any(variables["batch_stats"]["aggregate_mean"])


def test_a_function_as_a_submodule_and_in_nnx():
    from flax import nnx

    model = C.layers.Dense(4, activation=C.relu)(C.input_variable(3))

    class Whole(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(C.interop.to_flax(model)(x))

    data = sample(5, 3)
    variables = Whole().init(jax.random.key(0), data)
    assert set(variables["params"]) == {"CNTKModule_0", "Dense_0"}
    assert Whole().apply(variables, data).shape == (5, 1)
    bridged = nnx.bridge.ToNNX(C.interop.to_flax(model), rngs=nnx.Rngs(0)).lazy_init(data)
    assert np.allclose(bridged(data), model.eval(data), atol=1e-6)


def test_round_trip():
    x, z = C.input_variable(3), C.input_variable(3)
    model = C.layers.Dense(2)(x)
    again = C.interop.from_flax(C.interop.to_flax(model), z)
    assert np.allclose(again.eval({z: sample(4, 3)}), model.eval({x: sample(4, 3)}), atol=1e-6)


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'to_torch'"):
        C.interop.to_torch  # noqa: B018
