"""Residuals of the backward pass, with and without rematerialization."""

import jax
import numpy as np

import cntkjax as C
from cntkjax.engine.data.layout import Batch
from cntkjax.engine.lower.lower import execute
from cntkjax.engine.lower.values import Context, Traced
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.train.remat import execute_in_segments
from cntkjax.graph.variable import value_of
from tests.engine.train.training import SIZES, Y, network, train


def residual_bytes(depth, run):
    """Size of the residuals of a deep network on 64 samples, and its gradient."""
    x = C.input_variable(8)
    h = x
    for i in range(depth):
        h = C.tanh(C.times(h, C.parameter((8, 8), init=C.glorot_uniform(seed=i))))
    plan = Plan([C.reduce_sum(h).output])
    data = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)

    def loss(data):
        ctx = Context(True, Batch(64, 64, True), {}, None)
        env = {v: Traced(value_of(v), ()) for v in plan.leaves} | {x: Traced(data, x.dynamic_axes)}
        run(plan, ctx, env)
        return env[plan.outputs[0]].data.sum()

    backward = jax.eval_shape(lambda data: jax.vjp(loss, data)[1], data)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(backward)), jax.grad(loss)(data)


def test_memory_grows_with_the_square_root_of_the_depth():
    without, gradient = residual_bytes(36, execute)
    with_segments, same_gradient = residual_bytes(36, execute_in_segments)
    weights = 36 * 8 * 8 * 4
    assert with_segments - weights < (without - weights) / 3
    np.testing.assert_allclose(same_gradient, gradient, rtol=1e-5, atol=1e-6)


def test_recurrences_over_rows_of_several_sequences(grid):
    def trained(**options):
        x = C.sequence.input_variable(2)
        f = C.layers.Recurrence(C.layers.GRU(3, init=C.glorot_uniform(seed=1)))(x)
        loss = C.sequence.reduce_sum(C.reduce_sum(f))
        trainer = C.Trainer(None, loss, C.sgd(f.parameters, C.learning_parameter_schedule(0.1)), **options)
        trainer.train_minibatch({x: [np.ones((n, 2), np.float32) for n in (5, 2, 3)]})
        return [p.value for p in f.parameters]

    for rematerialized, expected in zip(trained(rematerialize=True), trained(), strict=True):
        np.testing.assert_allclose(rematerialized, expected, rtol=1e-5)


def test_rematerialization_changes_no_values():
    exact, again = (train(network(depth=5, **options), SIZES[:3]) for options in ({}, {"rematerialize": True}))
    for a, b in zip(exact, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_rematerialization_of_sequences_with_state():
    results = []
    for options in {}, {"rematerialize": True}:
        x, y = C.sequence.input_variable(9, is_sparse=True), C.input_variable(3)
        h = C.layers.Embedding(4, init=C.glorot_uniform(seed=1))(x)
        h = C.layers.Dropout(0.2, seed=5)(h)
        h = C.layers.Recurrence(C.layers.GRU(4, init=C.glorot_uniform(seed=2)))(h)
        gathered = C.sequence.gather(h, C.greater(C.reduce_sum(h), -9))
        h = C.layers.BatchNormalization()(C.sequence.last(gathered))
        loss = C.squared_error(C.layers.Dense(3, init=C.glorot_uniform(seed=3))(h), y)
        trainer = C.Trainer(None, (loss, None), C.momentum_sgd(loss.parameters, 0.1, 0.9), **options)
        for _ in range(3):
            trainer.train_minibatch({x: C.Value.one_hot([[1, 2, 3], [4, 1]], 9), y: Y[:2]})
        results.append([p.value for p in (*loss.parameters, *loss.constants)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
