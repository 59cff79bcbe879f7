"""Reductions: the whole minibatch, and gradients of maxima (numbers recorded from CNTK 2.7)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.data.layout import Layout
from cntkjax.interop import leaf_names, to_jax
from cntkjax.primitives.reduce import STEPWISE, over_steps

BATCH, EVERYTHING = C.Axis.default_batch_axis(), C.Axis.all_axes()
SEQUENCES = [np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.ones((1, 2, 3), np.float32)]
OPS = {
    C.reduce_sum: np.sum, C.reduce_mean: np.mean, C.reduce_max: np.max, C.reduce_min: np.min, C.reduce_prod: np.prod,
    C.reduce_log_sum_exp: lambda x, axis=None: np.log(np.sum(np.exp(x), axis)),
}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
class TestOverSamples:
    def test_batch_axis(self, op):
        data = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
        x = C.input_variable((2, 3))
        f = op(x, BATCH)
        assert f.shape == (2, 3) and f.dynamic_axes == ()
        np.testing.assert_allclose(f.eval({x: data}), OPS[op](data, axis=0), rtol=1e-5)

    def test_everything_leaves_padding_out(self, grid, op):
        x = C.sequence.input_variable((2, 3))
        f = op(x, EVERYTHING)
        assert f.shape == () and f.dynamic_axes == ()
        elements = np.concatenate([s.ravel() for s in SEQUENCES])
        np.testing.assert_allclose(f.eval({x: SEQUENCES}), OPS[op](elements), rtol=1e-5)

    def test_dropped_batch_axis_together_with_a_static_one(self, op):
        data = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
        x = C.input_variable((2, 3))
        value = op(x, [BATCH, 0], keepdims=False).eval({x: data})
        np.testing.assert_allclose(value, OPS[op](OPS[op](data, axis=1), axis=0), rtol=1e-5)


def test_each_of_several_largest_elements_gets_the_whole_gradient():
    x = C.input_variable(4, needs_gradient=True)
    assert C.reduce_max(x).grad({x: [[1, 3, 3, 2]]}).tolist() == [[0, 1, 1, 0]]
    over_batch = C.reduce_max(x, BATCH).grad({x: np.array([[0, -3, 1, 2], [0, -3, 2, 1]], np.float32)})
    assert over_batch.tolist() == [[1, 1, 0, 1], [1, 1, 1, 0]]


@pytest.mark.parametrize("value", [[5, np.inf, np.inf], [-np.inf] * 3, [0, 0, 0], [1e30, 2e30, -1e30]], ids=str)
def test_argmax_of_a_long_axis_takes_the_first(value):
    data = np.tile(np.array(value, np.float32), 50)
    assert C.argmax(C.constant(data)).eval() == data.argmax()
    assert C.hardmax(C.constant(data)).eval().argmax() == data.argmax()


def affine(shape, make=C.input_variable):
    """An input, its product with parameters plus a bias, and the bias.

    XLA may join the product and the sum to one instruction, which rounds once, in one kernel and not in another.
    """
    rng = np.random.default_rng(0)
    scale, bias = (C.parameter(init=rng.random(shape, np.float32)) for _ in range(2))
    x = make(shape)
    return x, x * scale + bias, bias


@pytest.mark.parametrize("op", [C.reduce_max, C.reduce_min, C.sequence.reduce_max])
@pytest.mark.parametrize("width", [33, 1000])
def test_no_gradient_is_lost_where_the_operand_of_a_maximum_could_be_rounded_in_two_ways(op, width):
    is_sequence = op is C.sequence.reduce_max
    x, y, bias = affine((1,), C.sequence.input_variable) if is_sequence else affine((width,))
    data = np.random.default_rng(1).standard_normal((50, width, *x.shape[:is_sequence])).astype(np.float32)
    assert op(y).grad({x: data}, wrt=[bias]).sum() == 50


@pytest.mark.parametrize("op", [C.reduce_max, C.reduce_min])
@pytest.mark.parametrize("shape, axes", [((33,), 0), ((1000,), 0), ((3, 50, 7), 1), ((3, 50, 7), [0, 2])], ids=str)
def test_no_gradient_of_a_maximum_is_lost_in_functions_that_jax_compiles(op, shape, axes):
    _, y, bias = affine(shape)
    data = np.random.default_rng(1).standard_normal((50, *shape)).astype(np.float32)
    f, parameters = to_jax(op(y, axes))
    name = next(n for n, parameter in leaf_names(y.parameters).items() if parameter == bias)
    gradients = jax.jit(jax.grad(lambda p: jnp.sum(f(p, data))))(parameters)
    assert gradients[name].sum() == f(parameters, data).size


@pytest.mark.parametrize("width", [33, 200, 1000])
def test_hardmax_finds_an_element_in_a_recurrence_that_is_differentiated(width):
    """Of what it compares there with the maximum none may be equal to it, as XLA computes both again."""
    rng = np.random.default_rng(0)
    scale, bias, weight = (C.parameter(init=rng.random(width, np.float32)) for _ in range(3))
    x = C.sequence.input_variable(width)
    y = C.layers.Recurrence(C.Function(lambda s, x: C.hardmax((s * weight + x) * scale + bias)))(x)
    data = [rng.standard_normal((n, width)).astype(np.float32) for n in (40, 30, 7)]
    _, values = C.reduce_sum(y * (x * bias)).grad({x: data}, wrt=[bias], outputs=[y])
    for sequence, value in zip(data, values, strict=True):
        state = np.zeros(width, np.float32)
        for step, found in zip(sequence, value, strict=True):
            largest = np.argmax((state * weight.value + step) * scale.value + bias.value)
            state = np.eye(width, dtype=np.float32)[largest]
            assert np.array_equal(found, state)


@pytest.mark.parametrize("width", [128, 1000, 1025])
def test_the_first_of_equal_elements_of_a_long_axis(width):
    x = C.input_variable((width, 2))
    rng = np.random.default_rng(0)
    data = rng.integers(0, 30, (20, width, 2)).astype(np.float32)
    data[0], data[1], data[2, -1] = -np.inf, 5, 40
    data[3, width // 2 :] = np.inf
    for op, find in ((C.argmax, np.argmax), (C.argmin, np.argmin)):
        assert np.array_equal(op(x, 0).eval({x: data})[:, 0], find(data, 1))
    flat = C.input_variable(width)
    assert np.array_equal(C.hardmax(flat).eval({flat: data[..., 0]}), np.eye(width)[data[..., 0].argmax(1)])


def shared_rows(sequences, steps, size):
    """Sequences of equal length end to end in one row, and their layout."""
    length = np.full(sequences, steps, np.int32)
    start = np.arange(sequences, dtype=np.int32) * steps
    layout = Layout(np.zeros_like(length), start, length, sequences * steps, 1)
    return np.random.default_rng(0).standard_normal((sequences * steps, 1, size)).astype(np.float32), layout


@pytest.mark.parametrize("reduction", STEPWISE)
def test_reductions_of_sequences_that_share_a_row_read_each_step_only_a_few_times(reduction):
    x, layout = shared_rows(32, 16, 8)
    compiled = jax.jit(lambda x, layout: over_steps(reduction, x, layout)).lower(x, layout).compile()
    assert compiled.cost_analysis()["bytes accessed"] < 16 * x.nbytes  # a gather of whole rows: 32 times and more
    expected = {"Sum": jnp.sum, "Mean": jnp.mean, "Max": jnp.max, "Min": jnp.min, "LogSum": jax.nn.logsumexp}[reduction]
    np.testing.assert_allclose(compiled(x, layout), expected(x.reshape(32, 16, 8), 1), rtol=1e-5, atol=1e-5)
