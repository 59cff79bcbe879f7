"""Networks for a few samples that the library in C computes are those that XLA computes."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.native import library as library_module
from cntkjax.engine.native.library import RELU, SIGMOID, TANH
from cntkjax.engine.native.program import Writer
from cntkjax.engine.run import few_rows as few_rows_module
from cntkjax.engine.run.few_rows import few_rows
from cntkjax.engine.run.prediction import Prediction
from cntkjax.engine.xla.platform import LOWERINGS

RNG = np.random.default_rng(7)
convolution, dense, Sequential = C.layers.Convolution, C.layers.Dense, C.layers.Sequential


@pytest.fixture
def use_native(native, monkeypatch):
    """Evaluations use this library, with two threads."""
    monkeypatch.setattr(few_rows_module, "library", lambda: native)
    monkeypatch.setattr("cntkjax.engine.native.program.threads", lambda: 2)


def by_library(function, rows):
    prediction = Prediction(function.outputs)
    layers = few_rows(prediction.plan, rows)
    if not (layers and layers._native):
        return None
    call = layers.bound(prediction.leaves)
    return lambda *arrays: call(arrays)


def by_xla(function, batches, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(few_rows_module, "library", lambda: None)
        patch.setitem(LOWERINGS, "cpu", replace(LOWERINGS["cpu"], convolutions="xla"))
        return function.eval(dict(zip(prediction_arguments(function), batches, strict=True)))


def prediction_arguments(function):
    """The arguments in the order in which a call takes them."""
    return Prediction(function.outputs).plan.arguments


def image(*layers, shape=(3, 9, 10)):
    return Sequential([*layers])(C.input_variable(shape))


def residual(x):
    return C.relu(convolution((3, 3), 20, pad=True)(C.relu(convolution((1, 1), 20)(x))) + convolution((1, 1), 20)(x))


def normalized(x):
    h = convolution((3, 3), 7, bias=False)(x)
    parameters = [C.parameter(init=array.astype(np.float32)) for array in RNG.uniform(0.5, 2, (4, 7))]
    return C.batch_normalization(h, *parameters, spatial=True, running_count=C.constant(1))


def read_twice(x):
    h = convolution((2, 3), 5)(x)
    return C.relu(h) * C.tanh(h) - h + 3


NETWORKS = {
    "dense": Sequential([dense(70, activation=C.relu), dense(33, activation=C.sigmoid), dense(5, activation=C.tanh)])(
        C.input_variable(600)),
    "dense, several axes": dense((3, 4), activation=C.relu, init_bias=1)(C.input_variable((5, 6))),
    "softmax by NumPy": Sequential([dense(40), C.elu, dense(6, activation=C.softmax)])(C.input_variable(9)),
    "no padding": image(convolution((3, 3), 16, init_bias=0.3, activation=C.relu)),
    "padding, strides": image(convolution((3, 5), 17, strides=(2, 3), pad=True), convolution((3, 3), 65, pad=True)),
    "sides of even windows": image(convolution((4, 2), 6, pad=True), convolution((2, 4), 70, strides=2, pad=True)),
    "images of one cell": image(convolution((3, 3), 5, pad=True), shape=(3, 1, 1)),
    "rows of one cell": Sequential([convolution((3,), 5, pad=True)])(C.input_variable((3, 1))),
    "1x1": image(convolution((1, 1), 40, strides=2)),
    "one position": image(convolution((9, 10), 18, activation=C.tanh)),
    "dilation of rows": C.convolution(
        C.parameter((4, 3, 3, 1), init=C.glorot_uniform(seed=1)), C.input_variable((3, 9, 10)), dilation=[1, 2, 1],
        auto_padding=[False, True, True]),
    "one axis": Sequential([convolution((3,), 8, pad=True), C.layers.MaxPooling((2,), 2)])(C.input_variable((4, 11))),
    "pooling": image(convolution((3, 3), 18, pad=True), C.layers.MaxPooling((3, 3), 2, pad=True), C.relu,
                     C.layers.AveragePooling((2, 3), 2)),
    "pooling with padding": image(
        lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2), [True, True], include_pad=True),
        lambda x: C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2), ceil_out_dim=True), dense(3)),
    "rectified pooling": image(convolution((3, 3), 5), C.relu, C.layers.MaxPooling((2, 2), 2), dense(4)),
    "global pooling": image(convolution((3, 3), 30), C.layers.GlobalAveragePooling(), dense(4)),
    "residual": image(convolution((3, 3), 20, pad=True), residual, residual, dense(3)),
    "normalized": image(normalized, C.relu, C.layers.MaxPooling((2, 2), 2)),
    "normalized, shared": image(normalized, lambda h: C.relu(h) * h),
    "read twice": image(read_twice, dense(3)),
    "of images": image(lambda x: (x - 0.5) / 4, lambda x: x - C.parameter((3, 9, 10), init=0.1),
                       convolution((3, 3), 4, pad=True), lambda h: h * C.parameter((4, 1, 1), init=C.normal(1, seed=3)),
                       lambda h: 2 - h - C.parameter((9, 10), init=C.glorot_uniform(seed=2))),
    "reshaped": image(convolution((3, 3), 4), lambda h: C.reshape(h, (7, 32)), C.layers.Dropout(0.5),
                      convolution((3,), 5), lambda h: C.reshape(h, (-1,)), dense(2)),
    "transforms": image(convolution((3, 3), 32, pad=True), convolution((3, 3), 40, pad=True, activation=C.tanh),
                        convolution((3, 3), 64, init_bias=0.3), convolution((3, 3), 7, activation=C.relu)),
    "transforms, residual": image(
        convolution((3, 3), 16, pad=True),
        lambda h: C.relu(h + Sequential([
            convolution((3, 3), 16, pad=True, activation=C.relu), convolution((3, 3), 16, pad=True)])(h)),
        lambda h: C.sigmoid(convolution((3, 3), 16, pad=True)(h) + h), shape=(3, 21, 37)),
    "dense, then an image": Sequential([
        dense((4, 3, 5)), convolution((3, 3), 3, pad=True), lambda h: h + C.stop_gradient(h)])(C.input_variable(8)),
    "two arguments": Sequential([dense(70, activation=C.relu), dense(5)])(
        C.splice(C.input_variable(20), C.input_variable(7))),
    "a sum of arguments": dense(4)(C.input_variable(20) + C.input_variable(20)) * C.input_variable(4),
    "two images and a vector": Sequential([dense(20, activation=C.relu), dense(3)])(C.splice(
        C.reshape(convolution((3, 3), 5, pad=True)(C.input_variable((3, 9, 10)) - C.input_variable((3, 9, 10))), -1),
        C.input_variable(6))),
}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_numbers_are_those_of_xla(name, rows, use_native, monkeypatch):
    f = NETWORKS[name]
    rng = np.random.default_rng(rows)
    batches = [rng.standard_normal((rows, *v.shape)).astype(np.float32) for v in prediction_arguments(f)]
    call, expected = by_library(f, rows), by_xla(f, batches, monkeypatch)
    assert call, "the library does not compute it"
    for _ in range(2):  # borders stay 0
        (value,) = call(*batches)
        assert value.dtype == np.float32 and value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


def test_element_wise_functions_are_accurate(native):
    x = np.concatenate([np.linspace(-20, 20, 4001), [-1e30, -88, -1e-30, 1e-8, 0.3, 100, np.inf, -np.inf]])
    x = x.astype(np.float32)
    functions = {TANH: np.tanh, SIGMOID: lambda v: 1 / (1 + np.exp(-v)), RELU: lambda v: np.where(v > 0, v, 0)}
    for activation, f in functions.items():
        writer = Writer(native, 1, {})
        (value,) = writer.program([(writer.activated(writer.input(len(x)), activation), x.shape)])([x[None]])
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(value[0], f(x.astype(np.float64)), rtol=2.7e-7, atol=1e-37)


def test_tanh_is_within_a_unit_and_a_half_in_the_last_place(native):
    x, writer = np.linspace(-10, 10, 40001, dtype=np.float32), Writer(native, 1, {})
    (value,) = writer.program([(writer.activated(writer.input(len(x)), TANH), x.shape)])([x[None]])
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(value[0] - exact) <= 1.5 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_nan_stays(native):
    x = np.full((1, 20), np.nan, np.float32)
    for activation in (RELU, SIGMOID, TANH):
        writer = Writer(native, 1, {})
        assert np.isnan(writer.program([(writer.activated(writer.input(20), activation), (20,))])([x])).all()


@pytest.mark.parametrize("position", range(4))
def test_the_maximum_of_a_window_is_nan_wherever_nan_lies_in_it(position, use_native):
    f = image(C.layers.MaxPooling((2, 2), 2), convolution((1, 1), 1, init=1), shape=(1, 2, 4))
    batch = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    batch[0, 0, position // 2, position % 2] = np.nan
    np.testing.assert_array_equal(by_library(f, 1)(batch)[0].ravel(), [np.nan, 7])


@pytest.mark.parametrize("cells", [0, np.nan, np.inf, -np.inf, 3e38])
def test_a_convolution_by_transforms_gives_the_products_of_its_windows(cells, use_native):
    f = image(convolution((3, 3), 64, pad=True), shape=(32, 7, 9))
    (w, b), batch = f.parameters, RNG.standard_normal((1, 32, 7, 9)).astype(np.float32)
    batch[0, 5, 2, 3:5] = cells
    padded = np.pad(batch[0], [(0, 0), (1, 1), (1, 1)]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    with np.errstate(invalid="ignore"):
        exact = np.einsum("cyxij,ocij->oyx", windows, w.value) + b.value.reshape(-1, 1, 1)
    (value,) = by_library(f, 1)(batch)
    reads_them = np.zeros((7, 9), bool)
    reads_them[1:4, 2:6] = True
    for where in (reads_them, ~reads_them):
        finite = exact[:, where][np.isfinite(exact[:, where])]
        tolerance = 1e-6 * np.abs(finite).max(initial=0)
        np.testing.assert_allclose(value[0][:, where], exact[:, where], rtol=0, atol=tolerance)


def test_several_outputs_are_arrays_of_their_own(use_native):
    h = dense(4)(C.input_variable(3))
    call = by_library(C.combine([h, C.dropout(h, 0.5)]), 2)
    before, after = call(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(before, after)
    before += 1
    assert not np.shares_memory(before, after)
    assert not np.array_equal(call(np.ones((2, 3), np.float32))[0], before)


@pytest.mark.parametrize("size, error", [(500, 2.5e-7), (9216, 6e-7)])
def test_a_sum_of_many_products_is_rounded_as_a_sum_of_parts(size, error, native):
    rng, writer = np.random.default_rng(7), Writer(native, 1, {})
    x, weight = rng.standard_normal((1, size)).astype(np.float32), rng.standard_normal((size, 64)).astype(np.float32)
    (value,) = writer.program([(writer.product("weight", writer.input(size), weight), (64,))])([x])
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    assert np.abs(value - exact).max() <= error * np.abs(exact).max()


@pytest.mark.parametrize("f", [
    C.convolution(
        C.parameter((6, 1, 3, 3)), C.input_variable((3, 5, 5)), groups=3, auto_padding=[False, True, True]),
    C.convolution_transpose(C.parameter((3, 2, 3, 3)), C.input_variable((3, 5, 5)), auto_padding=[False, True, True]),
    convolution((3, 3, 3), 2)(C.input_variable((2, 4, 4, 4))), C.relu(C.input_variable((3, 4, 4))),
    convolution((3, 3), 2)(C.input_variable((3, C.FreeDimension, C.FreeDimension))),
    C.times(C.input_variable((2, 4)), C.parameter((4, 3))),
], ids=["groups", "transposed", "three axes", "no product", "free dimensions", "mapped axes"])
def test_other_networks_are_left_to_others(f, use_native):
    assert not by_library(f, 1)


def test_predictors_share_packed_weights_between_batches(use_native, monkeypatch):
    f = image(convolution((3, 3), 8, activation=C.relu), dense(3))
    predict = C.Predictor(f)
    for rows in (1, 2, 5):
        batch = RNG.standard_normal((rows, 3, 9, 10)).astype(np.float32)
        np.testing.assert_allclose(predict(batch), by_xla(f, [batch], monkeypatch), rtol=1e-5, atol=1e-6)
    assert len(predict._program._packed_weights) == 2


def test_repeated_evaluations_see_what_training_changes(use_native):
    f = image(convolution((3, 3), 4, pad=True, activation=C.relu), dense(3))
    batch = RNG.standard_normal((2, 3, 9, 10)).astype(np.float32)
    values = [f.eval(batch) for _ in range(8)]
    np.testing.assert_allclose(values, [values[0]] * 8, rtol=1e-5, atol=1e-6)
    for parameter in f.parameters:
        parameter.value = 2 * parameter.value
    for _ in range(4):
        np.testing.assert_allclose(f.eval(batch), 4 * values[0], rtol=1e-5, atol=1e-5)


def test_threads_may_compute_at_the_same_time(use_native):
    f = image(convolution((3, 3), 32, pad=True, activation=C.relu), convolution((3, 3), 40), dense(3))
    call, failures = by_library(f, 2), []
    batches = RNG.standard_normal((4, 2, 3, 9, 10)).astype(np.float32)
    expected = [call(batch)[0] for batch in batches]

    def repeat(i):
        for _ in range(300):
            if not np.array_equal(call(batches[i])[0], expected[i]):
                failures.append(i)

    workers = [threading.Thread(target=repeat, args=(i,)) for i in range(len(batches))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_forked_process_computes_with_threads_of_its_own(use_native):
    f = image(convolution((3, 3), 64, pad=True), convolution((3, 3), 64))
    call, batch = by_library(f, 3), RNG.standard_normal((3, 3, 9, 10)).astype(np.float32)
    expected = call(batch)[0]
    child = os.fork()
    if not child:
        os._exit(0 if all(np.array_equal(call(batch)[0], expected) for _ in range(20)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_samples_of_another_size_are_an_error(use_native):
    call = by_library(dense(3)(C.input_variable(4)), 2)
    with pytest.raises(ValueError, match="32 contiguous bytes"):
        call(np.zeros((1, 4), np.float32))


def test_a_library_of_another_version_is_not_used(tmp_path):
    assert library_module._load(tmp_path / "missing.so") is None
    (tmp_path / "damaged.so").write_bytes(b"nothing")
    assert library_module._load(tmp_path / "damaged.so") is None


@pytest.mark.parametrize("value, number", [("1", 1), ("", None), ("many", None)])
def test_as_many_threads_compute_as_xla_has(monkeypatch, value, number):
    library_module.threads.cache_clear()
    monkeypatch.setenv("NPROC", value)
    assert library_module.threads() == (number or len(os.sched_getaffinity(0)))
    library_module.threads.cache_clear()
