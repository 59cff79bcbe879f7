"""A training step: what it computes before and after its update, and what it keeps."""

import gc

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.train.step import Step
from tests.train.test_trainer import regression


def test_padding_changes_no_averages():
    x, y, _, _, z, loss, metric = regression()
    trainer = C.Trainer(z, (loss, metric), [C.sgd(z.parameters, 0.0)])
    rng = np.random.default_rng(0)
    for n in (8, 7, 5, 8):  # one program with, one without padding
        data, target = rng.random((n, 3), np.float32), rng.random((n, 1), np.float32)
        trainer.train_minibatch({x: data, y: target})
        error = data @ np.full((3, 1), 0.5) - target
        assert trainer.previous_minibatch_loss_average == pytest.approx((error**2).mean(), rel=1e-5)
        assert trainer.previous_minibatch_sample_count == n


def test_outputs_are_computed_before_the_update():
    x, y, _, _, z, loss, _ = regression()
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, 0.1)])
    trained, values = trainer.train_minibatch({x: np.ones((2, 3)), y: np.zeros((2, 1))}, outputs=[z.output])
    assert trained
    np.testing.assert_allclose(values[z.output], [[1.5], [1.5]])


def test_batch_normalization_statistics_follow_the_training():
    x = C.input_variable(2)
    mean, variance, count = C.constant(0, (2,)), C.constant(0, (2,)), C.constant(0, ())
    scale = C.parameter(2, init=1)
    z = C.batch_normalization(x, scale, C.parameter(2), mean, variance, spatial=False, running_count=count,
                              normalization_time_constant=5000)
    trainer = C.Trainer(z, (C.square(z), None), [C.sgd([scale], 0.0001)])
    data = np.random.default_rng(0).random((6, 2), np.float32)
    trainer.train_minibatch({x: data})
    np.testing.assert_allclose(mean.value, data.mean(0), rtol=1e-5)  # the first minibatch is taken as it is
    np.testing.assert_allclose(variance.value, data.var(0, ddof=1), rtol=1e-5)
    assert count.value == 6


def test_dropout_differs_between_steps_and_is_off_in_tests():
    x = C.input_variable(50)
    z = C.dropout(x, 0.5, seed=3)
    w = C.parameter(50, init=1)
    trainer = C.Trainer(z, (C.square(z * w), C.square(z * w)), [C.sgd([w], 0.0)])
    fed = {x: np.ones((4, 50))}
    outputs = []
    for _ in range(2):
        _, values = trainer.train_minibatch(fed, outputs=[z.output])
        outputs.append(values[z.output])
    assert set(np.unique(outputs)) == {0, 2} and (outputs[0] != outputs[1]).any()
    assert trainer.test_minibatch(fed) == pytest.approx(50)


def test_memory_does_not_grow_over_minibatches_of_varying_lengths():
    import jax

    x = C.sequence.input_variable(2)
    W = C.parameter((2, 2), init=C.glorot_uniform())
    loss = C.square(C.times(x, W))
    trainer = C.Trainer(None, (loss, None), [C.momentum_sgd([W], 0.01, 0.9)])
    rng = np.random.default_rng(0)
    minibatches = [[rng.random((n, 2), np.float32) for n in rng.integers(1, 9, rng.integers(1, 6))] for _ in range(25)]

    def train(rounds):
        for minibatch in minibatches * rounds:
            trainer.train_minibatch({x: minibatch})
        _ = trainer.previous_minibatch_loss_average
        gc.collect()
        return len(jax.live_arrays()), len(gc.get_objects())

    train(4)
    # a leak grows in each round; a program that is compiled in the background only in one
    arrays, objects = np.diff([train(4) for _ in range(5)], axis=0).min(0)
    assert arrays <= 2
    assert objects <= 25


def test_samples_of_computed_sequences_are_counted_without_the_network():
    x, y = C.sequence.input_variable(3), C.sequence.input_variable(2)
    scores = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(4)), C.layers.Dense(2)])(C.sequence.slice(x, 1, 0))
    loss = C.cross_entropy_with_softmax(scores, C.sequence.slice(y, 1, 0))
    step = Step([loss.output], [], [])
    assert len(Plan([step.sample_counter.earliest_source]).nodes) < 6
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.1))
    trainer.train_minibatch({v: [np.ones((n, v.shape[0]), np.float32) for n in (4, 2)] for v in (x, y)})
    assert trainer.previous_minibatch_sample_count == 4


def test_an_attribute_that_is_set_takes_effect_in_the_next_step():
    """As in CNTK 2.7; a dropout of 0.9 leaves a tenth of the ones, times ten."""
    x, w = C.input_variable(50), C.parameter((50, 1), init=1.0)
    loss = C.reduce_sum(C.times(C.dropout(x, 0.9, name="dropped"), w))
    trainer = C.Trainer(None, (loss, None), C.sgd([w], C.learning_parameter_schedule_per_sample(1e-9)))
    losses = []
    for rate in (0.9, 0.0):
        loss.find_by_name("dropped").set_attribute("dropoutRate", rate)
        trainer.train_minibatch({x: np.ones((20, 50), np.float32)})
        losses.append(trainer.previous_minibatch_loss_average)
    assert losses[0] != 50 and losses[1] == 50
