"""JAX functions with parameters as Functions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import cntkjax as C
from cntkjax.interop import from_jax, to_jax

F = np.float32


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def mlp(parameters, x):
    for layer in parameters["layers"]:
        x = jnp.tanh(x @ layer["W"] + layer["b"])
    return x


@pytest.fixture
def parameters():
    return {"layers": [{"W": sample(3, 4), "b": sample(4, seed=2)}, {"W": sample(4, 2, seed=3), "b": np.zeros(2, F)}]}


def test_it_computes_and_differentiates(parameters):
    x = C.input_variable(3, needs_gradient=True)
    model = from_jax(mlp, parameters, x, name="mlp")
    data = sample(5, 3)
    assert (model.shape, model.dynamic_axes, model.name) == ((2,), x.dynamic_axes, "mlp")
    assert [p.name for p in model.parameters] == ["layers.0.W", "layers.0.b", "layers.1.W", "layers.1.b"]
    assert np.allclose(model.eval({x: data}), mlp(parameters, data), atol=1e-6)
    wrt = model.parameters[0]
    gradients = C.reduce_sum(model).grad({x: data}, wrt=[x, wrt])
    expected = jax.grad(lambda p, x: mlp(p, x).sum(), (0, 1))(parameters, data)
    assert np.allclose(gradients[x], expected[1], atol=1e-5)
    assert np.allclose(gradients[wrt], expected[0]["layers"][0]["W"], atol=1e-5)


def test_it_trains_among_layers(parameters):
    x, y = C.input_variable(3), C.input_variable(1)
    model = C.layers.Dense(1)(from_jax(mlp, parameters, x))
    loss = C.squared_error(model, y)
    trainer = C.Trainer(model, (loss,), [C.learners.from_optax(model.parameters, optax.adam(0.02))])
    for seed in range(250):
        data = sample(20, 3, seed=seed)
        trainer.train_minibatch({x: data, y: data[:, :1] * 0.5})
    assert trainer.previous_minibatch_loss_average < 0.02


def test_steps_of_sequences_are_samples(parameters):
    s = C.sequence.input_variable(3)
    model = from_jax(mlp, parameters, C.sequence.past_value(s))
    data = [sample(n, 3, seed=n) for n in (3, 1, 4)]
    for value, sequence in zip(model.eval({s: data}), data, strict=True):
        assert np.allclose(value, mlp(parameters, np.concatenate([np.zeros((1, 3), F), sequence[:-1]])), atol=1e-6)


def test_in_a_recurrent_loop():
    s, h = C.sequence.input_variable(2), C.placeholder(2)
    state = from_jax(lambda p, h, x: h * p + x, np.float32(0.5), [C.sequence.past_value(h), s])
    state.replace_placeholders({h: state})
    x = sample(4, 2)
    expected = np.zeros(2, F)
    for row in x:
        expected = expected * 0.5 + row
    assert np.allclose(C.sequence.last(state).eval({s: [x]})[0], expected, atol=1e-6)


def test_several_results_and_operands_without_axes():
    x, w = C.input_variable(2), C.parameter((2,), init=3)
    both = from_jax(lambda p, x, w: (x * w, x.sum(axis=1)), (), [x, w])
    product, total = both.outputs
    values = both.eval({x: [[1, 2], [3, 4]]})
    assert values[product].tolist() == [[3, 6], [9, 12]] and values[total].tolist() == [3, 7]
    assert total.shape == ()


def test_the_batch_has_no_padding():
    x = C.input_variable(1)
    centred = from_jax(lambda p, x: x - x.mean(axis=0), (), x)
    for count in (4, 3, 5):
        data = sample(count, 1, seed=count)
        assert np.allclose(centred.eval({x: data}), data - data.mean(0), atol=1e-6)


def test_state_changes_while_training():
    def counted(parameters, state, x, training):
        return x * parameters, {"calls": state["calls"] + (1 if training else 0)}

    x = C.input_variable(1)
    model = from_jax(counted, np.float32(1), x, state={"calls": np.float32(0)})
    trainer = C.Trainer(model, (C.square(model),), [C.sgd(model.parameters, 0.1)])
    for _ in range(3):
        trainer.train_minibatch({x: sample(2, 1)})
        model.eval({x: sample(2, 1)})
    assert [(c.name, c.value.item()) for c in model.constants] == [("calls", 3)]


def test_random_numbers_differ_from_call_to_call():
    x = C.input_variable(50)
    model = from_jax(lambda p, x, rng: x + jax.random.normal(rng, x.shape), (), x, random=True)
    zeros = np.zeros((1, 50), F)
    assert not np.allclose(model.eval(zeros), model.eval(zeros))


def test_round_trip(parameters):
    x = C.input_variable(3)
    f, returned = to_jax(from_jax(mlp, parameters, x))
    assert np.allclose(f(returned, sample(4, 3)), mlp(parameters, sample(4, 3)), atol=1e-6)


def test_clones_have_their_own_parameters(parameters):
    x = C.input_variable(3)
    model = from_jax(mlp, parameters, x)
    copy = model.clone("clone")
    copy.parameters[0].value = copy.parameters[0].value * 0
    data = sample(2, 3)
    assert np.allclose(model.eval(data), mlp(parameters, data), atol=1e-6)
    assert not np.allclose(copy.eval(data), model.eval(data))


def test_errors(parameters, tmp_path):
    x = C.input_variable(3)
    with pytest.raises(RuntimeError, match=r"of operands \[5\] raised TypeError"):
        from_jax(mlp, parameters, C.input_variable(5))
    with pytest.raises(ValueError, match="return arrays with the batch axis first"):
        from_jax(lambda p, x: x.sum(), (), x)
    with pytest.raises(ValueError, match="cannot be saved"):
        from_jax(mlp, parameters, x).save(str(tmp_path / "it"))
