"""The pieces that learners are made of: clipping, noise, momentum, precision."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cntkjax as C
from cntkjax import learners as L
from cntkjax.learners import _transforms as transforms
from tests.learners.weights import Weights, steps


@pytest.mark.parametrize("first", [1.0, 1e-6])
def test_step_sizes_of_rmsprop_may_overflow(first):
    w = Weights([0.0, 0.0])
    learner = L.rmsprop([w], 1.0, gamma=0.1, inc=3.0, dec=0.1, max=np.inf, min=1e-8)
    for step in range(120):
        learner.update({w: np.array([first, (-1) ** step], np.float32)}, 1)
    resting = w.value.copy()
    learner.update({w: np.array([first, 1], np.float32)}, 1)
    assert np.isfinite(resting).all() and (w.value == resting).all()  # as in CNTK 2.7


def test_double_precision_changes_no_setting():
    single, double = Weights([1.0]), Weights([1.0], np.float64, "double")
    learner = L.momentum_sgd([single, double], 0.1, 0.9)
    steps(learner, 1 / 3, [1, 1])
    exact = 1 - 0.1 / 3 * (0.1 + 0.19)
    assert single.value.dtype == np.float32 and abs(single.value[0] - exact) < 1e-7
    assert double.value.dtype == np.float64 and abs(double.value[0] - exact) < 1e-15
    assert not jax.config.jax_enable_x64


def test_half_precision_accumulates_small_steps():
    w = Weights([1.0, 2.0], np.float16)
    learner = L.momentum_sgd([w], 0.0004, 0.0)
    for _ in range(51):
        learner.update({w: np.array([1, -2], np.float16)}, 4)
    assert w.value.dtype == np.float16
    assert w.value.tolist() == [0.9951171875, 2.009765625]  # CNTK 2.7; each single step is below float16's resolution


def test_half_precision_follows_a_parameter_set_by_the_user():
    w = Weights([1.0], np.float16)
    learner = L.sgd([w], 0.5)
    steps(learner, 1.0, [1])
    w.value = np.array([3.0], np.float16)
    assert steps(learner, 1.0, [1]).tolist() == [2.5]


def test_the_deviation_of_noise_is_independent_of_the_rate():
    w = Weights(np.zeros(20000), np.float64)
    deviations = L.learning_parameter_schedule([1.0, 2.0], epoch_size=4)
    learner = L.sgd([w], 0.001, gaussian_noise_injection_std_dev=deviations)
    moves = [steps(learner, 0.0, [4]).copy()]
    moves.append(steps(learner, 0.0, [4]) - moves[0])
    for move, deviation in zip(moves, (1.0, 2.0), strict=True):
        assert move.std() == pytest.approx(deviation, rel=0.03)
        assert abs(move.mean()) < 0.05 * deviation
    assert abs(np.corrcoef(moves)[0, 1]) < 0.03


def test_parameters_and_learners_draw_different_noise():
    a, b, c = (Weights(np.zeros(5000), name=name) for name in "abc")
    steps(L.sgd([a, b], 0.1, gaussian_noise_injection_std_dev=1), 0.0, [1])
    steps(L.sgd([c], 0.1, gaussian_noise_injection_std_dev=1), 0.0, [1])
    assert np.abs(np.corrcoef([a.value, b.value, c.value]) - np.eye(3)).max() < 0.06


def test_l1_is_applied_after_the_noise():
    w = Weights(np.zeros(1000))
    steps(L.sgd([w], 1.0, gaussian_noise_injection_std_dev=0.1, l1_regularization_weight=0.2), 0.0, [1])
    assert (w.value == 0).mean() > 0.9


@settings(max_examples=20)
@given(st.floats(0, 0.9), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_unit_gain_momentum_only_delays_a_constant_gradient(momentum, sizes):
    w = Weights([0.0], np.float64)
    with jax.disable_jit():
        steps(L.momentum_sgd([w], 0.1, momentum), 1.0, sizes)
    delay = momentum * (1 - momentum ** len(sizes)) / (1 - momentum)
    np.testing.assert_allclose(w.value, [-0.1 * (len(sizes) - delay)], rtol=1e-9)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.floats(1e-3, 10), st.integers(1, 9))
def test_clipping_bounds_the_gradient(gradient, threshold, n):
    g = np.array(gradient, np.float32)
    hyper = {"divisor": 1.0, "weight": float(n), "rate": 1.0}

    def clipped(piece):
        return np.asarray(piece(threshold).update([g], piece(threshold).init([g]), [g], hyper=hyper)[0][0])

    by_value, by_norm = clipped(transforms.clip_by_value), clipped(transforms.clip_by_norm)
    limit = threshold * n
    np.testing.assert_allclose(by_value, np.clip(g, -limit, limit), rtol=1e-6, atol=1e-30)
    norm = np.linalg.norm(g.astype(np.float64))
    np.testing.assert_allclose(by_norm, g * min(1, limit / norm) if norm else g, rtol=1e-5, atol=1e-30)


def test_momentum_of_rows_smooths_averaged_gradients():
    """The numbers are CNTK's."""
    x = C.sequence.input_variable(4, is_sparse=True)
    E = C.parameter((4, 2), init=np.arange(8, dtype=np.float32).reshape(4, 2))
    loss = C.reduce_sum(C.square(C.times(x, E)))
    trainer = C.Trainer(None, loss, [C.momentum_sgd([E], 0.1, 0.9, use_mean_gradient=True)])
    for ids in ([[0, 1, 1], [2]], [[0], [0, 2]], [[1, 1]]):
        trainer.train_minibatch({x: C.Value.one_hot(ids, 4)})
    np.testing.assert_allclose(E.value, [[0, 0.9772], [1.9224, 2.8836], [3.9355, 4.9193], [6, 7]], atol=1e-4)
