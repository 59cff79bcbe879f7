"""Repeated pieces of a graph, computed as one scan, are the same as the pieces one by one."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntk as C
from cntkjax.engine.lower.repeats import _stack
from cntkjax.engine.plan import repeats
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla.compiler import compiler_options
from tests.engine.plan.test_repeats import NETWORKS, STEPS, WIDTH, found

DATA = np.random.default_rng(0).normal(size=(5, STEPS, WIDTH)).astype(np.float32)


@pytest.fixture(autouse=True)
def _empty_store(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what is stored of a network is not traced


def trained(network):
    """Losses, and all parameters after three steps; and the values of an evaluation."""
    programs.clear()
    C.cntk_py.set_fixed_random_seed(1)
    x = C.input_variable((STEPS, WIDTH))
    h = C.combine([network(x)])
    learner = C.sgd(h.parameters, C.learning_parameter_schedule_per_sample(0.05))
    trainer = C.Trainer(h, (C.reduce_sum(C.square(h)), None), [learner])
    losses = []
    for _ in range(3):
        trainer.train_minibatch({x: DATA})
        losses.append(trainer.previous_minibatch_loss_average)
    values = h.eval({x: DATA})
    programs.clear()
    return [losses, values, *(p.value for p in h.parameters)]


@pytest.mark.parametrize("name", NETWORKS)
def test_repeated_pieces_train_as_the_same_pieces_one_by_one(name, monkeypatch):
    rolled = trained(NETWORKS[name])
    monkeypatch.setattr(repeats, "LEAST_PIECES", 1000)
    assert not found(NETWORKS[name])
    for value, expected in zip(rolled, trained(NETWORKS[name]), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


def test_a_gradient_in_the_graph_of_repeated_pieces_is_that_of_numpy():
    x, w = C.input_variable(4), C.parameter(4, init=0.5)
    h = x
    for _ in range(40):
        h = h + 0.1 * C.tanh(h * w)
    data = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    value, slope = data.astype(float), np.ones((2, 4))
    for _ in range(40):
        t = np.tanh(value * 0.5)
        slope, value = slope * (1 + 0.1 * (1 - t**2) * 0.5), value + 0.1 * t
    plan = Plan(h.outputs)
    assert len(repeats.repeats(plan.parts, plan.outputs)) < 20
    np.testing.assert_allclose(h.eval({x: data}), value, rtol=1e-5)
    np.testing.assert_allclose(h.grad({x: data}, wrt=[x]), slope, rtol=1e-5)


def test_repeated_pieces_stand_beside_sequences_of_several_axes():
    """Axes cannot be sorted, as jax would do with the keys of a dict."""
    inputs = [C.sequence.input_variable(2, sequence_axis=C.Axis(name)) for name in ("a", "b")]
    roots = []
    for h in inputs:
        for _ in range(40):
            h = C.tanh(h * 0.5) + C.sin(h)
        roots.append(h)
    data = [np.full((1, steps, 2), 0.25, np.float32) for steps in (3, 5)]
    expected = 0.25
    for _ in range(40):
        expected = np.tanh(expected * 0.5) + np.sin(expected)
    for value in C.combine(roots).eval(dict(zip(inputs, data, strict=True))).values():
        np.testing.assert_allclose(value[0], expected, rtol=1e-5)


def test_repeated_pieces_of_which_only_the_axis_matters_have_gradients_of_zeros():
    x, steps, start = C.input_variable(18), C.sequence.input_variable(1), C.input_variable(2)
    pieces = [C.slice(x, 0, 0, 1)]
    for i in range(17):
        pieces.append(C.sigmoid(C.reduce_sum(pieces[-1]) * 0.1 + C.slice(x, 0, i, i + 1)))
    plan = Plan(C.splice(*pieces).outputs)
    assert any(isinstance(item, repeats.Repeat) for item in repeats.repeats(plan.parts, plan.outputs))
    of_steps = C.sequence.broadcast_as(C.splice(*pieces), steps)
    doubled = C.layers.UnfoldFrom(lambda h: h * 2)(start, of_steps)
    loss = C.sequence.reduce_sum(C.reduce_sum(doubled))
    data = {x: np.ones((1, 18)), steps: [np.ones((3, 1))], start: np.ones((1, 2))}
    gradients = loss.grad(data, [x, start])
    assert not gradients[x].any() and gradients[x].shape == (1, 18)
    assert gradients[start].tolist() == [[2 + 4 + 8] * 2]


def kernels_of_updates(layers):
    """The different kernels of a step that trains equal layers."""
    def step(weights):
        def loss(weights):
            h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), jnp.ones((8, 16)), _stack(weights))
            return jnp.sum(h)

        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    weights = [jnp.ones((16, 16))] * layers
    text = jax.jit(step, compiler_options=compiler_options()).lower(weights).compile().as_text()
    kernels = re.findall(r"^%[\w.]*fused_computation.*?^}", text, re.MULTILINE | re.DOTALL)
    others = rf"%[\w.]+|param_[\d.]+|metadata={{[^}}]*}}|\b{layers}\b|\b{layers - 1}\b"  # names and numbers of layers
    return {re.sub(others, "", kernel) for kernel in kernels}


def test_the_updates_of_equal_layers_are_equal_kernels():
    assert len(kernels_of_updates(12)) == len(kernels_of_updates(24)) < 12
