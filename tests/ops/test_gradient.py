"""Gradients as Functions, against formulas and against Function.grad."""

import io

import numpy as np
import pytest

import cntkjax as C

F = np.float32


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def test_an_input_has_a_gradient_for_each_sample():
    x, w = C.input_variable(3), C.parameter(init=sample(3, 2))
    slope = C.gradient(C.reduce_sum(C.square(C.times(x, w))), x)
    data = sample(5, 3, seed=2)
    assert slope.shape == (3,) and slope.dynamic_axes == x.dynamic_axes
    assert np.allclose(slope.eval({x: data}), 2 * data @ w.value @ w.value.T, atol=1e-5)


def test_a_parameter_has_one_gradient_for_all_samples_even_if_the_batch_is_padded():
    x, w = C.input_variable(3), C.parameter(init=sample(3, 2))
    loss = C.reduce_sum(C.exp(C.times(x, w)))
    slope = C.gradient(loss, w)
    assert slope.dynamic_axes == ()
    for count in (5, 4, 7):
        data = sample(count, 3, seed=count)
        assert np.allclose(slope.eval({x: data}), data.T @ np.exp(data @ w.value), rtol=1e-5)


def test_gradients_of_any_order():
    x = C.input_variable(2, needs_gradient=True)
    f = C.reduce_sum(x**4)
    data = np.array([[1, 2], [3, 4]], F)
    for factor, power in ((4, 3), (12, 2), (24, 1)):
        f = C.gradient(f, x)
        assert np.allclose(f.eval({x: data}), factor * data**power)
    assert np.allclose(f.grad({x: data}), 24)


def test_several_variables_give_several_outputs():
    x, y = C.input_variable(2), C.input_variable(2)
    both = C.gradient(C.reduce_sum(x * x * y), [x, y], name="both")
    values = both.eval({x: [[2, 3]], y: [[4, 5]]})
    assert [values[v].tolist() for v in both.outputs] == [[[16, 30]], [[4, 9]]]


def test_the_gradient_of_an_intermediate_result():
    x = C.input_variable(2)
    h = C.exp(x)
    slope = C.gradient(C.reduce_sum(h * h + x), h)
    assert np.allclose(slope.eval({x: [[0, 1]]}), [2 * np.exp([0, 1])])


def test_the_gradient_of_a_result_inside_a_block():
    x = C.input_variable(3)
    hidden = C.layers.Dense(4, activation=C.tanh)(x)
    loss = C.reduce_sum(C.square(C.layers.Dense(2)(hidden)))
    data = sample(3, 3)
    through = C.gradient(loss, hidden)
    chained = C.gradient(C.reduce_sum(C.stop_gradient(through) * hidden), x)
    assert np.allclose(chained.eval({x: data}), C.gradient(loss, x).eval({x: data}), atol=1e-5)


def test_gradients_of_sequences_of_different_lengths():
    x = C.sequence.input_variable(2)
    state = C.layers.Recurrence(C.layers.RNNStep(3))(x)
    loss = C.reduce_sum(C.square(C.sequence.last(state)))
    data = [sample(n, 2, seed=n) for n in (3, 1, 5)]
    slope = C.gradient(loss, x)
    y = C.sequence.input_variable(2, needs_gradient=True)
    reference = loss.clone("share", {x: y}).grad({y: data})
    assert [g.shape for g in slope.eval({x: data})] == [(3, 2), (1, 2), (5, 2)]
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(slope.eval({x: data}), reference, strict=True))


def test_padding_adds_no_nan_to_functions_of_a_gradient():
    """The norm of a gradient has an infinite slope at zero, which no cell may hold."""
    x, w = C.input_variable(2), C.parameter(init=sample(2, 1))
    norm = C.sqrt(C.reduce_sum(C.square(C.gradient(C.times(C.square(x), w), x))))
    data = np.abs(sample(5, 2)) + 1  # five samples are padded to more
    gradient = C.reduce_sum(norm).grad({x: data}, wrt=[w])
    numbers = np.sqrt(np.sum((2 * data * w.value[:, 0]) ** 2, axis=1, keepdims=True))
    expected = np.sum(4 * data**2 * w.value[:, 0] / numbers, axis=0)
    assert np.allclose(gradient[:, 0], expected, rtol=1e-4)


def test_a_gradient_penalty_trains():
    """The penalty drives the slope of the critic with respect to its input to a norm of 1."""
    x = C.input_variable(2)
    critic = C.layers.Dense(1, init=C.glorot_uniform(seed=3))(x)
    norm = C.sqrt(C.reduce_sum(C.square(C.gradient(critic, x))))
    loss = C.square(norm - 1)
    trainer = C.Trainer(critic, (loss,), [C.sgd(critic.parameters, C.learning_parameter_schedule(0.1))])
    for _ in range(100):
        trainer.train_minibatch({x: sample(5, 2)})
    assert abs(np.linalg.norm(critic.W.value) - 1) < 1e-3


@pytest.mark.parametrize("options", [{"rematerialize": True}, {"accumulate": 2}], ids=str)
def test_a_gradient_trains_with_options(options):
    x, y = C.input_variable(2), C.input_variable(3)
    hidden = C.tanh(C.times(x, C.parameter(init=sample(2, 3, seed=5))))
    other = C.exp(C.times(y, C.parameter(init=sample(3, 3, seed=6))))  # does not depend on the variable of the gradient
    for _ in range(6):
        other = C.tanh(other)
    slope = C.gradient(C.reduce_sum(C.square(hidden) * other), hidden)
    loss = C.reduce_sum(C.square(slope))
    feeds = {x: sample(4, 2), y: sample(4, 3)}
    losses = []
    for keywords in ({}, options):
        trainer = C.Trainer(loss, (loss,), [C.sgd(loss.parameters, C.learning_parameter_schedule(0.0001))], **keywords)
        trainer.train_minibatch(feeds)
        losses.append(trainer.previous_minibatch_loss_average)
    assert np.isclose(*losses, rtol=0.05) and losses[0] > 0


def test_a_gradient_uses_the_random_numbers_of_its_loss():
    x = C.input_variable(100, needs_gradient=True)
    dropped = C.dropout(x, 0.5)
    both = C.combine([dropped, C.gradient(C.reduce_sum(dropped), x)])
    _, values = both.forward({x: np.ones((2, 100))}, both.outputs, set(both.outputs))
    value, slope = (values[v] for v in both.outputs)
    assert set(np.unique(value)) == {0, 2} and np.array_equal(value, slope)


def test_running_statistics_are_updated_once():
    x = C.input_variable(2)
    normalized = C.layers.BatchNormalization(normalization_time_constant=4)(x)
    loss = C.reduce_sum(C.square(normalized)) + C.reduce_sum(C.square(C.gradient(C.reduce_sum(normalized**3), x)))
    trainer = C.Trainer(loss, (loss,), [C.sgd(loss.parameters, C.learning_parameter_schedule(0.0))])
    plain = C.reduce_sum(C.square(C.layers.BatchNormalization(normalization_time_constant=4, name="bn")(x)))
    other = C.Trainer(plain, (plain,), [C.sgd(plain.parameters, C.learning_parameter_schedule(0.0))])
    data = sample(8, 2)
    trainer.train_minibatch({x: data})
    other.train_minibatch({x: data})
    means = [next(c for c in f.constants if c.name == "aggregate_mean").value for f in (loss, plain)]
    assert np.allclose(*means) and np.abs(means[0]).max() > 0


def test_clones_and_files_keep_a_gradient(tmp_path):
    x, y = C.input_variable(2, name="x"), C.input_variable(2)
    slope = C.gradient(C.reduce_sum(C.layers.Dense(3, activation=C.tanh)(x)), x)
    data = sample(2, 2)
    expected = slope.eval({x: data})
    assert np.allclose(slope.clone("clone", {x: y}).eval({y: data}), expected)
    slope.save(str(tmp_path / "it"))
    assert np.allclose(C.load_model(str(tmp_path / "it")).eval(data), expected)
    assert np.allclose(C.load_model(io.BytesIO((tmp_path / "it").read_bytes()).read()).eval(data), expected)


def test_a_gradient_inside_a_python_function_is_applied_later():
    @C.Function
    def slope(x):
        return C.gradient(C.reduce_sum(x * x * x), x)

    y = C.input_variable(2)
    assert slope(y).eval({y: [[1, 2]]}).tolist() == [[3, 12]]


@pytest.mark.parametrize("make, message", [
    (lambda x: C.gradient(C.reduce_sum(x), C.input_variable(2)), "does not depend on"),
    (lambda x: C.gradient(C.reduce_sum(x), []), "wrt is empty"),
])
def test_invalid_variables_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(C.input_variable(2))


def test_unsupported_gradients_are_errors():
    sparse = C.input_variable(3, is_sparse=True)
    loss = C.reduce_sum(C.times(sparse, C.parameter((3, 2), init=1)))
    with pytest.raises(ValueError, match="is sparse"):
        C.gradient(loss, sparse).eval({sparse: C.Value.one_hot([1], 3)})
    s = C.sequence.input_variable(2)
    state = C.layers.Recurrence(C.layers.RNNStep(2))(s)
    inside = state.root_function.inputs[0]
    with pytest.raises(ValueError, match="inside a recurrent loop"):
        C.gradient(C.reduce_sum(C.sequence.last(state)), inside).eval({s: [sample(3, 2)]})


def _recurrent():
    s = C.sequence.input_variable(3, dtype=np.float64)
    last = C.sequence.last(C.layers.Recurrence(C.layers.LSTM(4))(s))
    slope = C.gradient(C.reduce_sum(C.square(last)), s)
    return C.sequence.reduce_sum(C.reduce_sum(C.square(slope))), {s: [sample(n, 3, seed=n) for n in (3, 1, 5)]}


def _convolutional():
    x = C.input_variable((2, 6, 6), dtype=np.float64)
    model = C.layers.Sequential([
        C.layers.Convolution2D((3, 3), 4, activation=C.softplus, pad=True), C.layers.MaxPooling((2, 2), strides=2),
        C.layers.Convolution2D((3, 3), 3, activation=C.tanh), C.layers.Dense(1)])(x)
    return C.reduce_sum(C.square(C.gradient(model, x))), {x: sample(3, 2, 6, 6)}


@pytest.mark.parametrize("make", [_recurrent, _convolutional])
def test_parameter_gradients_through_input_gradients_in_loops_and_images(make):
    """Against the slope of the loss along a direction, by two evaluations."""
    with C.default_options(dtype=np.float64):
        loss, feeds = make()
    gradients = loss.grad(feeds, wrt=list(loss.parameters))
    for parameter in loss.parameters:
        value = parameter.value
        direction, step = sample(*value.shape, seed=7).astype(np.float64), 1e-4
        sums = []
        for sign in (1, -1):
            parameter.value = value + sign * step * direction
            sums.append(np.sum(loss.eval(feeds)))
        parameter.value = value
        slope = (sums[0] - sums[1]) / (2 * step)
        assert np.isclose(slope, np.sum(gradients[parameter] * direction), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["question", "answer"])  # graphs of the same structure share their program
def test_a_gradient_of_sequences_has_their_lengths_whatever_the_name_of_their_axis(name):
    x = C.sequence.input_variable(1, sequence_axis=C.Axis(name), needs_gradient=True)
    data = [np.full((n, 1), n, np.float32) for n in (3, 2, 5)]
    function = C.sequence.last(x * x * 3)
    assert function.grad({x: data}, wrt=[x], as_numpy=False).shape == (3, 5, 1)
    assert [g.ravel().tolist() for g in function.grad({x: data})] == [[0, 0, 18], [0, 12], [0, 0, 0, 0, 30]]
