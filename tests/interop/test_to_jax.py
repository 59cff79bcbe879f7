"""Functions as pure JAX functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.interop import leaf_names, to_jax

F = np.float32


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


@pytest.fixture
def model():
    x = C.input_variable(3, name="x")
    return C.layers.Sequential([C.layers.Dense(4, activation=C.tanh), C.layers.Dense(2)])(x)


def test_it_computes_what_the_function_does_under_jit_too(model):
    f, parameters = to_jax(model)
    data = sample(5, 3)
    assert np.allclose(f(parameters, data), model.eval(data), atol=1e-6)
    assert np.allclose(jax.jit(f)(parameters, data), model.eval(data), atol=1e-6)
    assert list(parameters) == ["W", "b", "W_1", "b_1"]
    assert [p.shape for p in parameters.values()] == [p.shape for p in model.parameters]


def test_gradients_are_those_of_the_function(model):
    f, parameters = to_jax(model)
    data = sample(5, 3)
    loss = C.reduce_sum(C.square(model))
    expected = loss.grad(data, wrt=list(model.parameters))
    gradients = jax.grad(lambda p: jnp.sum(f(p, data) ** 2))(parameters)
    for name, parameter in leaf_names(model.parameters).items():
        assert np.allclose(gradients[name], expected[parameter], atol=1e-5)


def test_single_samples_and_vmap(model):
    f, parameters = to_jax(model)
    data = sample(6, 3)
    single = f(parameters, data[0])
    assert single.shape == (2,)
    each = jax.vmap(f, in_axes=(None, 0))(parameters, data)
    assert np.allclose(each, f(parameters, data), atol=1e-6) and np.allclose(each[0], single, atol=1e-6)
    blocks = jax.vmap(f, in_axes=(None, 0))(parameters, data.reshape(2, 3, 3))
    assert np.allclose(blocks.reshape(6, 2), each, atol=1e-6)
    models = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), parameters)
    both = jax.vmap(f, in_axes=(0, None))(models, data)
    assert np.allclose(both[0], each, atol=1e-6) and not np.allclose(both[1], each)


def test_hessians():
    x = C.input_variable(2)
    f, _ = to_jax(C.reduce_sum(x**3))
    assert np.allclose(jax.hessian(lambda x: f({}, x)[()])(jnp.array([1.0, 2.0])), np.diag([6, 12]))


@pytest.mark.parametrize("reverse", [False, True])
def test_sequences_with_lengths(reverse):
    s = C.sequence.input_variable(3)
    model = C.layers.Recurrence(C.layers.LSTM(4), go_backwards=reverse)(s)
    f, parameters = to_jax(model)
    data = [sample(n, 3, seed=n) for n in (4, 2, 1)]
    padded = np.full((3, 4, 3), np.nan, F)
    for row, sequence in zip(padded, data, strict=True):
        row[: len(sequence)] = sequence
    values = jax.jit(f)(parameters, (padded, [4, 2, 1]))
    for row, sequence in zip(np.asarray(values), model.eval({s: data}), strict=True):
        assert np.allclose(row[: len(sequence)], sequence, atol=1e-5) and not row[len(sequence) :].any()


def test_sequences_of_one_length_and_single_ones():
    s = C.sequence.input_variable(3)
    model = C.sequence.last(C.layers.Recurrence(C.layers.GRU(4))(s))
    f, parameters = to_jax(model)
    data = sample(2, 5, 3)
    assert np.allclose(f(parameters, data), model.eval({s: data}), atol=1e-5)
    assert np.allclose(f(parameters, data[0]), model.eval({s: data})[0], atol=1e-5)


def test_sequences_created_by_the_function():
    s = C.sequence.input_variable(1)
    model = C.sequence.gather(s, C.reshape(C.greater(s, 0), ()))
    f, _ = to_jax(model)
    values = np.asarray(f({}, np.array([[[1], [-1], [2]], [[-3], [4], [-5]]], F)))[..., 0]
    assert values[0, :2].tolist() == [1, 2]
    assert values[1, 0] == 4
    assert not values[0, 2:].any() and not values[1, 1:].any()


def test_several_inputs_outputs_and_one_without_batch():
    x, y, w = C.input_variable(2), C.input_variable(2), C.input_variable(2, dynamic_axes=[])
    f, _ = to_jax(C.combine([x * w, y - x]))
    product, difference = f({}, [[1, 2]], [3, 4], [[5, 5]])
    assert product.tolist() == [[3, 8]] and difference.tolist() == [[4, 3]]


def test_dropout_takes_the_key():
    x = C.input_variable(1000)
    f, _ = to_jax(C.dropout(x, 0.5))
    ones = np.ones((1, 1000), F)
    assert np.array_equal(f({}, ones), ones)
    one, same, other = (f({}, ones, training=True, rng=jax.random.key(k)) for k in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert set(np.unique(one)) == {0, 2} and 400 < np.count_nonzero(one) < 600


def test_running_statistics_are_a_state():
    x = C.input_variable(2)
    model = C.layers.BatchNormalization(normalization_time_constant=8)(x)
    f, parameters = to_jax(model)
    data = sample(8, 2) + 3
    before = f.state
    assert set(before) == {"aggregate_mean", "aggregate_variance", "aggregate_count"}
    output, after = f.apply(parameters, before, data, training=True)
    assert np.allclose(np.mean(output, 0), 0, atol=1e-5)
    assert np.allclose(after["aggregate_mean"], data.mean(0), rtol=1e-4)  # the first minibatch counts whole
    _, unchanged = f.apply(parameters, after, data)
    assert all(np.array_equal(unchanged[n], after[n]) for n in after)
    assert not np.any(f.state["aggregate_mean"]), "the Function itself stays"


def test_a_gradient_inside_the_function():
    x = C.input_variable(2)
    f, _ = to_jax(C.gradient(C.reduce_sum(x**3), x))
    assert jax.jit(f)({}, [[1.0, 2.0]]).tolist() == [[3, 12]]


def test_later_values_of_parameters_have_no_effect(model):
    f, parameters = to_jax(model)
    before = np.asarray(f(parameters, sample(1, 3)))
    for p in model.parameters:
        p.value = p.value * 2
    assert np.array_equal(f(parameters, sample(1, 3)), before)


def test_errors_of_shapes_and_missing_parameters(model):
    f, parameters = to_jax(model)
    with pytest.raises(TypeError, match="takes 1 inputs after the parameters, not 2"):
        f(parameters, sample(1, 3), sample(1, 3))
    with pytest.raises(C.graph.errors.ShapeError, match=r"array of shape \[1 x 4\]; it takes \[batch, \*shape\]"):
        f(parameters, sample(1, 4))
    with pytest.raises(KeyError, match="no value for 'W'"):
        f({}, sample(1, 3))
    with pytest.raises(ValueError, match="'b' is given a value of shape"):
        f(parameters | {"b": np.zeros(7)}, sample(1, 3))
    x, y = C.input_variable(1), C.input_variable(1)
    g, _ = to_jax(x + y)
    with pytest.raises(ValueError, match="different sizes"):
        g({}, sample(2, 1), sample(3, 1))
    with pytest.raises(ValueError, match="some inputs have a batch axis"):
        g({}, sample(2, 1), sample(1))


def test_python_code_is_rejected():
    class Same(C.ops.functions.UserFunction):
        def infer_outputs(self):
            return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    with pytest.raises(ValueError, match="runs Python code"):
        to_jax(C.user_function(Same([C.input_variable(1)])))


def test_a_function_without_arguments():
    weights = C.parameter((2,), init=3, name="W")
    f, parameters = to_jax(weights * 2)
    assert np.array_equal(f(parameters), [6, 6])
    assert np.array_equal(jax.grad(lambda p: f(p).sum())(parameters)["W"], [2, 2])
