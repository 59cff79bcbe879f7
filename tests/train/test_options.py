"""Options of the trainer beyond CNTK: accumulation, mixed precision, rematerialization."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.train.loss_scale import LossScale
from cntkjax.engine.train.state import Accumulated

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 4)).astype(np.float32), RNG.normal(size=(24, 3)).astype(np.float32)
SIZES = [4, 2, 5, 1, 6, 6]


# The seeds matter: with others the first step in float16 overflows and is skipped.
def network(learner=lambda p: C.adam(p, C.learning_parameter_schedule_per_sample(0.01), 0.9), depth=1, **options):
    x, y = C.input_variable(4), C.input_variable(3)
    layers = [C.layers.Dense(8, C.tanh, init=C.glorot_uniform(seed=3 + i)) for i in range(depth)]
    z = C.layers.Sequential([*layers, C.layers.Dense(3, init=C.glorot_uniform(seed=99))])(x)
    loss = C.squared_error(z, y)
    return C.Trainer(z, (loss, loss), learner(z.parameters), **options), x, y


def values(trainer):
    return [p.value for p in trainer.loss_function.parameters]


def train(training, sizes, begin=0):
    trainer, x, y = training
    for n in sizes:
        assert trainer.train_minibatch({x: X[begin : begin + n], y: Y[begin : begin + n]}, is_sweep_end=begin == 11)
        begin += n
    return values(trainer)


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


def test_an_overflow_skips_the_step_and_halves_the_scale():
    x = C.input_variable(1)
    w, b = C.parameter((1, 1), init=1), C.parameter(1)
    z = C.layers.BatchNormalization(init_scale=1)(C.times(x, w) + b)
    loss = C.square(C.times(x, w) + b) + 0 * z
    trainer = C.Trainer(None, (loss, None), C.momentum_sgd(loss.parameters, 0.01, 0.9), precision="float16")
    trainer.train_minibatch({x: [[0.1], [0.2]]})
    before = values(trainer)
    trainer.train_minibatch({x: [[1e6], [1.0]]})
    assert trainer.pending.value.scale.factor == 2**14
    trained = values(trainer)
    for old, now in zip(before, trained, strict=True):
        np.testing.assert_array_equal(old, now)
    assert all(np.isfinite(c.value).all() for c in loss.constants)
    trainer.train_minibatch({x: [[0.1], [0.2]]})
    assert (values(trainer)[0] != trained[0]).any()


def test_the_scale_grows_after_2000_finite_steps():
    scale = LossScale(np.float32(8), np.int32(1998))
    for finite, expected in [(True, (8, 1999)), (True, (16, 0)), (False, (8, 0)), (True, (8, 1))]:
        scale = scale.updated(finite)
        assert (float(scale.factor), int(scale.steps)) == expected


def test_checkpoints_store_the_scale(tmp_path):
    saved, restored = network(precision="float16"), network(precision="float16")
    saved[0].pending.value = Accumulated(scale=LossScale(np.float32(4), np.int32(7)))
    saved[0].save_checkpoint(tmp_path / "t")
    restored[0].restore_from_checkpoint(tmp_path / "t")
    assert tuple(map(float, restored[0].pending.value.scale)) == (4, 7)


def test_small_gradients_survive_in_float16():
    x, w = C.input_variable(1), C.parameter((1, 1), init=0)
    loss = C.reduce_sum(1e-9 * C.times(x, w))
    trainer = C.Trainer(None, (loss, None), C.sgd([w], 1.0), precision="float16")
    trainer.train_minibatch({x: [[1.0]]})
    assert w.value.item() == pytest.approx(-1e-9, rel=0.05)


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


@pytest.mark.parametrize(("options", "says"), [
    ({"accumulate": 0}, "at least 1, not 0"),
    ({"accumulate": 2.0}, "at least 1, not 2.0"),
    ({"precision": "float8"}, "not 'float8'"),
])
def test_wrong_options_are_errors(options, says):
    with pytest.raises(ValueError, match=says):
        network(**options)


def test_options_that_conflict_with_a_model_are_errors():
    x = C.input_variable(2, dtype=np.float64)
    loss = C.square(x * C.parameter(2, dtype=np.float64))
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.1), precision="bfloat16")
    with pytest.raises(ValueError, match="double precision"):
        trainer.train_minibatch({x: [[1.0, 2.0]]})

    class Mine(C.learners.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            return True

    with pytest.raises(ValueError, match="UserLearner takes every step"):
        network(lambda p: Mine(p, 0.1), precision="float16")
