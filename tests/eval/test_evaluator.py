"""Evaluators, and trainers used as evaluators: averages, and which samples count as trained."""

import numpy as np
import pytest

import cntkjax as C

X = np.array([[0, 1], [2, 2]], np.float32)
Y = np.array([[0, 1], [1, 0]], np.float32)


def parts():
    x, y = C.input_variable(2, name="x"), C.input_variable(2, name="y")
    z = C.times(x, C.parameter(init=np.eye(2, dtype=np.float32))) + C.parameter(init=np.array([0, 1], np.float32))
    return x, y, z, C.classification_error(z, y)


def test_an_evaluator_averages_over_samples():
    x, y, _, error = parts()
    evaluator = C.Evaluator(error)
    assert evaluator.test_minibatch({x: X, y: Y}) == 0.5
    assert evaluator.test_minibatch((X, Y)) == 0.5
    assert evaluator.test_sum({"x": X, "y": Y}) == (1.0, 2)
    with pytest.raises(ValueError, match="needs the function"):
        C.Evaluator(None)


@pytest.mark.parametrize(("metric", "expected", "samples"), [
    (lambda s: s, 1.5, 4), (lambda s: C.reduce_sum(s) * 2, 12, 1), (lambda s: s + 1, 7, 1), (C.sqrt, 6**0.5, 1),
    (C.stop_gradient, 6, 1), (C.reduce_sum, 6, 1), (lambda s: C.combine([s]), 6, 1), (lambda s: s.output, 6, 1),
], ids=["sum", "times 2", "plus 1", "sqrt", "stop_gradient", "sum of the sum", "combine", "output"])
def test_what_is_computed_from_a_sum_over_the_batch_is_one_sample(metric, expected, samples):
    """Values of CNTK 2.7, which counts the samples of the first operand only."""
    x = C.input_variable(3)
    summed = C.reduce_sum(x * C.parameter((3,), init=0.5), C.Axis.all_axes())
    evaluator = C.Evaluator(metric(summed))
    total, counted = evaluator.test_sum({x: np.ones((4, 3), np.float32)})
    assert counted == samples and total / counted == pytest.approx(expected)


@pytest.mark.parametrize(("body", "expected"), [
    (lambda v: C.reduce_sum(v, C.Axis.all_axes()), 3), (lambda v: C.reduce_sum(v, C.Axis.all_axes()) + 1, 13),
])
def test_of_a_block_the_first_input_counts(body, expected):
    """Constants come before arguments."""
    x = C.input_variable(3)
    metric = C.BlockFunction("op", "name")(body)(x)
    assert C.Evaluator(metric).test_minibatch({x: np.ones((4, 3), np.float32)}) == expected


def test_names_are_those_of_all_that_is_computed():
    """Of a trainer also the loss's: it may have arguments, such as weights, that the metric lacks."""
    _, y, z, error = parts()
    weight = C.input_variable((), name="weight")
    data = {"x": X, "y": Y, "weight": np.ones(2, np.float32)}
    trainer = C.Trainer(z, (C.squared_error(z, y) * weight, error), C.sgd(z.parameters, 0.1))
    assert trainer.test_minibatch(data) == 0.5
    with pytest.raises(ValueError, match="no argument is called 'weight'; the names are: 'x', 'y'"):
        C.Evaluator(error).test_minibatch(data)


def test_of_data_for_a_variable_and_its_name_the_later_ones_count():
    x, y, _, error = parts()
    evaluator, second = C.Evaluator(error), np.array([[0, 1], [0, 1]], np.float32)
    assert evaluator.test_minibatch({x: X, y: Y, "y": second}) == 0.0
    assert evaluator.test_minibatch({"y": second, x: X, y: Y}) == 0.5


def test_evaluators_of_one_model_share_a_program():
    x, y, _, error = parts()
    evaluators = [C.Evaluator(error) for _ in range(2)]
    assert [evaluator.test_minibatch({x: X, y: Y}) for evaluator in evaluators] == [0.5, 0.5]
    first, second = (evaluator.test_step.program for evaluator in evaluators)
    assert first is second and len(first.executables) == 1


def test_a_trainer_counts_trained_samples():
    x, y, z, error = parts()
    loss = C.squared_error(z, y)
    trainer = C.Trainer(z, (loss, error), C.sgd(z.parameters, C.learning_parameter_schedule([0.1, 0.0])))
    assert isinstance(trainer, C.Evaluator)
    assert trainer.test_minibatch({x: X, y: Y}) == 0.5
    assert trainer.previous_minibatch_sample_count == 0
    assert trainer.train_minibatch({x: X, y: Y}, is_sweep_end=True)
    assert trainer.previous_minibatch_evaluation_average == 0.5
    assert not trainer.train_minibatch({x: X, y: Y})  # the rate is 0 in the second sweep
    assert (trainer.total_number_of_samples_seen, trainer.previous_minibatch_sample_count) == (2, 2)
    trained, values = trainer.train_minibatch({x: X, y: Y}, outputs=[z])
    assert not trained and values[z].shape == (2, 2)
    assert not trainer.train_minibatch({})
    assert trainer.previous_minibatch_sample_count == 0
    with pytest.raises(RuntimeError, match="no preceding call"):
        _ = trainer.previous_minibatch_loss_average
