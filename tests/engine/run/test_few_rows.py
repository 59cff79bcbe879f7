"""Dense layers for a few samples, computed by NumPy, are those of `eval`; everything else is left to XLA.

So it is without the library in C, for which see tests/engine/native.
"""

import inspect
import warnings

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run import few_rows as few_rows_module
from cntkjax.engine.run.few_rows import MOST_ROWS, few_rows
from cntkjax.engine.run.prediction import Prediction
from cntkjax.primitives.product import _part_of_weight

RNG = np.random.default_rng(3)
dense = C.layers.Dense


@pytest.fixture(autouse=True)
def without_the_library(monkeypatch):
    monkeypatch.setattr(few_rows_module, "library", lambda: None)


def bound(function, rows=2):
    prediction = Prediction(function.outputs)
    layers = few_rows(prediction.plan, rows)
    return None if layers is None else layers.bound(prediction.leaves)


def by_numpy(function, rows=2):
    call = bound(function, rows)
    return call and (lambda *arrays: call(arrays))


def network(*activations, shape=4):
    layers = [dense(5, activation=a, init_bias=0.3) for a in activations]
    return C.layers.Sequential(layers)(C.input_variable(shape))


MODELS = {
    "activations": network(C.relu, C.tanh, C.sigmoid, C.exp, C.softmax),
    "log_softmax": network(C.log_softmax),
    "ranks": dense((2, 3), activation=C.relu)(C.input_variable((3, 2))),
    "numbers": C.times(C.input_variable(()), C.parameter((3, 4), init=C.glorot_uniform(seed=1)), output_rank=2),
    "scaled": C.layers.Sequential([C.layers.Dropout(0.5), dense(3), lambda h: 2 - C.abs(-h) * C.constant([1, 2, 3])])(
        C.input_variable(4)),
    "more activations": network(
        C.leaky_relu, C.elu, C.selu, C.softplus, C.softsign, lambda h: C.hard_sigmoid(h, 0.2, 0.5)),
    "constants": C.layers.Sequential([
        lambda x: (x - 0.1) / 255, dense(3), C.layers.Stabilizer(),
        lambda h: C.clip(h, -0.01, C.constant([0.02, 1, 0])),
        lambda h: C.element_max(h, -0.5) / C.abs(C.floor(h * 2)), lambda h: C.alias(C.stop_gradient(h), "y"), dense(2),
    ])(C.input_variable(4)),
    "reductions": C.layers.Sequential([dense((3, 5)), lambda h: C.reduce_sum(
        h * C.reduce_max(h, axis=1) - C.reduce_mean(h, axis=(0, 1)), axis=0)])(C.input_variable(4)),
    "a sum of all elements": C.layers.Sequential([dense((2, 3)), C.reduce_sum])(C.input_variable(4)),
    "a minimum of numbers": C.reduce_min(dense(5)(C.input_variable(4)), axis=0),
    "residual": C.layers.ResNetBlock(dense(4, activation=C.tanh))(C.input_variable(4)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 7])
def test_the_numbers_are_those_of_eval(name, rows):
    f = MODELS[name]
    batch = RNG.standard_normal((rows, *f.arguments[0].shape)).astype(np.float32)
    (value,) = by_numpy(f)(batch)
    expected = f.eval(batch)
    assert value.dtype == np.float32 and value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-6 * np.abs(expected).max())


def test_double_precision_is_computed_in_it():
    with C.default_options(dtype=np.float64):
        f = network(C.tanh, C.sigmoid)
    batch = RNG.standard_normal((2, 4))
    (value,) = by_numpy(f)(batch)
    np.testing.assert_allclose(value, f.eval(batch), rtol=1e-13)


def test_several_outputs_are_arrays_of_their_own():
    h = network(C.relu)
    f = C.combine([h, C.dropout(h, 0.5)])
    batch = np.ones((2, 4), np.float32)
    before, after = by_numpy(f)(batch)
    np.testing.assert_array_equal(before, after)
    before += 1
    assert not np.shares_memory(before, after)


def test_numbers_that_overflow_give_no_warning():
    batch = np.array([[1e30, -1e30, np.inf, np.nan]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_numpy(network(C.exp, C.sigmoid, C.log_softmax))(batch)


def different_lookup():
    x = C.input_variable((2, 4))
    return C.times(x, C.parameter((4, 3)))  # an axis that is mapped


def aligned_with_the_batch():
    x = C.input_variable((2, 4))
    return x + C.reduce_sum(x, axis=0, keepdims=False)


def test_what_follows_from_leaves_alone_is_computed_once():
    f = C.times(C.input_variable(2), -2 * C.parameter(init=np.eye(2, dtype=np.float32)))
    call = bound(f)
    assert len(inspect.getclosurevars(call).nonlocals["steps"]) == 1
    np.testing.assert_array_equal(call([np.array([[1, 2]], np.float32)])[0], [[-2, -4]])


@pytest.mark.parametrize("f", [
    different_lookup(), aligned_with_the_batch(), dense(2048)(C.input_variable(1024)),
    C.layers.Convolution((3, 3), 2)(C.input_variable((1, 5, 5))), C.softmax(C.input_variable((2, 3))),
    C.random.uniform_like(C.input_variable(3)) + dense(3)(C.input_variable(2)),
    dense(2)(C.sequence.input_variable(3)),
], ids=str)
def test_other_functions_are_left_to_xla(f):
    assert by_numpy(f) is None


def test_many_elements_in_several_passes_are_left_to_xla():
    for f, rows, is_by_numpy in [
        (network(C.sigmoid, shape=4), 64, True), (C.sigmoid(C.input_variable(4097)), 1, False),
        (C.tanh(C.input_variable(4097)), 1, True), (C.input_variable(9000) / (C.parameter(9000) + 1), 1, True),
    ]:
        assert (by_numpy(f, rows) is not None) == is_by_numpy


@pytest.mark.parametrize("rows, inner, outer, part", [
    (1, 784, 512, 784), (1, 1024, 1024, 512), (1, 2048, 2048, 256), (1, 4096, 2048, 0),  # 0: left to XLA
    (64, 64, 64, 64), (8, 784, 512, 64), (16, 784, 512, 32), (32, 784, 512, 0), (8, 1024, 2048, 0), (2, 3, 1 << 20, 0),
])
def test_a_blas_multiplies_no_more_at_once_than_in_one_thread(rows, inner, outer, part):
    assert _part_of_weight(rows, inner, outer) == part


@pytest.mark.parametrize("shape, outputs", [((700,), (600,)), ((3, 233), (20, 30))])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_products_in_parts_are_those_of_eval(rows, shape, outputs):
    f = dense(outputs, activation=C.relu, init_bias=0.1)(C.input_variable(shape))
    assert 0 < _part_of_weight(rows, np.prod(shape), np.prod(outputs)) < np.prod(shape) or rows == 1
    batch = RNG.standard_normal((rows, *shape)).astype(np.float32)
    (value,) = by_numpy(f, rows)(batch)
    expected = f.eval(batch)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_a_predictor_leaves_large_batches_to_xla():
    f = network(C.relu)
    predict = C.Predictor(f)
    for rows, executables in ((1, 0), (MOST_ROWS, 0), (MOST_ROWS + 1, 1)):
        batch = RNG.standard_normal((rows, 4)).astype(np.float32)
        np.testing.assert_allclose(predict(batch), f.eval(batch), rtol=1e-5, atol=1e-6)
        assert len(predict._program.program.executables) == executables
