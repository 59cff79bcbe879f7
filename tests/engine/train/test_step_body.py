"""What a step computes beyond CNTK: gradients of several minibatches, and products of low precision."""

import numpy as np
import pytest

import cntkjax as C
from tests.engine.train.training import SIZES, X, Y, network, train, values


@pytest.mark.parametrize("learner", [
    lambda p: C.sgd(p, C.learning_parameter_schedule_per_sample([0.01, 0.02], epoch_size=12)),
    lambda p: C.momentum_sgd(p, 0.1, 0.9, minibatch_size=C.learners.IGNORE),
    lambda p: C.adam(p, C.learning_parameter_schedule([0.05, 0.02]), 0.9),  # the rate changes with the sweep
])
def test_accumulated_minibatches_equal_one_minibatch(learner):
    parts = network(learner, accumulate=3)
    initial = values(parts[0])
    for before, now in zip(initial, train(parts, SIZES[:2]), strict=True):
        np.testing.assert_array_equal(before, now)
    (learning,) = parts[0].parameter_learners
    assert (parts[0].total_number_of_samples_seen, learning.total_number_of_samples_seen()) == (6, 0)
    results = train(parts, SIZES[2:], 6)
    single = network(learner)
    expected = train(single, [11, 13])
    for a, b in zip(expected, results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert learning.counters == single[0].parameter_learners[0].counters
    assert parts[0].previous_minibatch_sample_count == 6


def embedding(**options):
    x, y = C.input_variable(50, is_sparse=True), C.input_variable(2)
    E = C.parameter((50, 2), init=np.ones((50, 2), np.float32))
    loss = C.squared_error(C.times(x, E), y)
    return C.Trainer(None, (loss, None), C.momentum_sgd([E], 0.1, 0.9), **options), x, y, E


def test_row_gradients_of_an_embedding_accumulate():
    words = [[3, 7], [7, 40, 3], [5], [40, 41]]
    results = []
    for groups, options in (words, {"accumulate": 2}), ([words[0] + words[1], words[2] + words[3]], {}):
        trainer, x, y, E = embedding(**options)
        for group in groups:
            trainer.train_minibatch({x: C.Value.one_hot(group, 50), y: np.zeros((len(group), 2))})
        results.append(E.value)
    np.testing.assert_allclose(*results, rtol=1e-6)
    assert (results[0][[0, 6, 49]] == 1).all()
    assert (results[0][[3, 5, 7, 40, 41]] != 1).all()


@pytest.mark.parametrize("make", [network, embedding])
def test_checkpoints_store_accumulated_gradients(tmp_path, make):
    def feed(training, steps):
        trainer, x, y, *_ = training
        for i in steps:
            first = X[i : i + 2] if make is network else C.Value.one_hot([i, 7], 50)
            trainer.train_minibatch({x: first, y: Y[i : i + 2, : y.shape[0]]})
        return values(trainer)

    straight, other = make(accumulate=3), make(accumulate=3)
    feed(straight, range(4))
    straight[0].save_checkpoint(tmp_path / "t")
    other[0].restore_from_checkpoint(tmp_path / "t")
    assert other[0].total_number_of_samples_seen == 8
    for a, b in zip(feed(straight, range(4, 9)), feed(other, range(4, 9)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_products_have_low_precision_and_parameters_do_not(precision, tolerance):
    exact, narrow = network(), network(precision=precision)
    for a, b in zip(train(exact, SIZES), train(narrow, SIZES), strict=True):
        assert b.dtype == np.float32
        assert 0 < np.abs(a - b).max() < 0.05
    trainer, x, y = narrow
    loss, same = (t.test_minibatch({t_x: X, t_y: Y}) for t, t_x, t_y in (exact, narrow))
    assert loss == pytest.approx(same, rel=100 * tolerance)
    _, out = trainer.train_minibatch({x: X, y: Y}, outputs=[trainer.model.output])
    assert out[trainer.model.output].dtype == np.float32


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_loops_and_convolutions_have_low_precision(precision):
    results = []
    for options in {}, {"precision": precision}:
        x = C.sequence.input_variable((1, 6))
        h = C.layers.Convolution1D(3, 2, init=C.glorot_uniform(seed=1))(x)
        h = C.layers.Recurrence(C.layers.LSTM(4, init=C.glorot_uniform(seed=2)))(C.reshape(h, -1))
        loss = C.reduce_sum(C.square(h))
        trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.1), **options)
        for _ in range(3):
            trainer.train_minibatch({x: [X[:6].reshape(4, 1, 6), X[8:11].reshape(2, 1, 6)]})
        results.append(values(trainer))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05, atol=0.01)
    assert any((a != b).any() for a, b in zip(*results, strict=True))
