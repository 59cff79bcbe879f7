"""Convolutions by the library in C: the numbers of double precision, from several threads, and from stored programs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax._build_native import CONVOLUTIONS
from cntkjax.engine.convolutions import library, rewriting
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla.platform import LOWERINGS
from cntkjax.interop import to_jax
from tests.engine.convolutions.examples import convolved, gradients_of_filters

pytestmark = pytest.mark.skipif(library.library() is None, reason="the library was not built, or has no AVX2")

CASES = {  # the operand, the filters, options, and how many calls of the library value and gradients are
    "3x3": ((5, 9, 8), (7, 5, 3, 3), {}, 3),
    "more outputs than a panel": ((5, 9, 8), (70, 5, 3, 3), {}, 3),
    "whole panels": ((3, 6, 31), (32, 3, 3, 3), {}, 3),
    "strides": ((13, 9, 8), (7, 13, 3, 3), {"strides": (2, 2)}, 3),
    "strides and few channels": ((5, 9, 8), (7, 5, 3, 3), {"strides": (2, 2)}, 2),
    "strides that differ": ((13, 13, 11), (7, 13, 5, 4), {"strides": (3, 2)}, 3),
    "strides along two of three axes": ((5, 7, 9, 8), (4, 5, 3, 3, 2), {"strides": (1, 2, 2)}, 3),
    "a stride larger than the window": ((20, 13, 11), (40, 20, 2, 2), {"strides": (3, 3)}, 3),
    "strides and dilation": ((13, 13, 11), (7, 13, 3, 3), {"strides": (2, 2), "dilation": (1, 2, 2)}, 2),
    "strides, no padding": ((5, 9, 8), (7, 5, 4, 3), {"strides": (3, 2), "auto_padding": [False]}, 3),  # padded first
    "dilation": ((5, 12, 11), (7, 5, 3, 3), {"dilation": (1, 2, 3)}, 3),
    "1x1": ((5, 9, 8), (7, 5, 1, 1), {}, 3),
    "1x1, many channels": ((40, 9, 15), (70, 40, 1, 1), {}, 3),
    "1x1, narrow": ((5, 9, 3), (7, 5, 1, 1), {}, 1),  # the gradient of the filters
    "one axis": ((5, 13), (7, 5, 4), {}, 3),
    "three axes": ((3, 6, 5, 4), (6, 3, 3, 2, 3), {}, 3),
    "many planes": ((3, 21, 5, 4), (6, 3, 3, 2, 3), {}, 3),
    "many planes and strides": ((9, 21, 6, 5), (20, 9, 4, 3, 2), {"strides": (2, 1, 1)}, 3),
    "three axes, dilation": ((3, 9, 8, 9), (6, 3, 2, 3, 3), {"dilation": (1, 2, 1, 2)}, 3),
    "large window": ((2, 11, 11), (3, 2, 9, 9), {}, 3),
    "several units for an image": ((24, 80, 80), (40, 24, 3, 3), {}, 3),
}


@pytest.fixture
def calls(monkeypatch):
    """The tasks that programs have the library do, each compiled anew."""
    tasks = []
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    programs.clear()
    monkeypatch.setitem(
        rewriting._CALLS, "native", lambda task: tasks.append(task) or rewriting._native_call(task)
    )
    return tasks


def value_and_gradients(case, precision):
    z, x, w, data = convolved(*CASES[case][:3], precision)
    gradients, value = C.reduce_sum(C.square(z)).grad({x: data}, wrt=[x, w], outputs=[z])
    return [value, gradients[x], gradients[w]]


@pytest.fixture(params=CONVOLUTIONS, ids=lambda built: built.path.stem)
def built(request, monkeypatch):
    """One of the libraries, for its own vectors, which programs call."""
    loaded, name = library.load(request.param.path), request.param.path.stem
    if loaded is None:
        pytest.skip("not for this processor")
    library.register()
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(loaded.cntkjax_convolution), platform="cpu")
    monkeypatch.setattr(library, "TARGET", name)


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_double_precision(case, calls, built):
    expected = value_and_gradients(case, np.float64)
    assert not calls
    results = value_and_gradients(case, np.float32)
    assert len(calls) == CASES[case][3]
    for each, result in zip(expected, results, strict=True):
        np.testing.assert_allclose(result, each, rtol=1e-5, atol=1e-5 * np.abs(each).max())


@pytest.mark.parametrize("strides", [(2, 2), (3, 1)])
def test_transposed_convolutions_are_those_of_double_precision(strides, calls):
    results = []
    for precision in (np.float64, np.float32):
        rng = np.random.default_rng(7)
        x = C.input_variable((5, 6, 7), dtype=precision, needs_gradient=True)
        w = C.parameter(init=rng.normal(size=(5, 17, 3, 3)).astype(precision))
        z = C.convolution_transpose(w, x, strides, auto_padding=[False, True, True])
        data = rng.normal(size=(2, 5, 6, 7)).astype(precision)
        gradients, value = C.reduce_sum(C.square(z)).grad({x: data}, wrt=[x, w], outputs=[z])
        results.append([value, gradients[x], gradients[w]])
    assert len(calls) == 3
    for expected, result in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_filters_of_the_operands_gradient_are_read_in_reverse_where_they_lie(calls):
    value_and_gradients("3x3", np.float32)
    assert [task.weights.strides for task in calls] == [[45, 9, 3, 1], [45, 9, 3, 1], [9, 45, -3, -1]]


def test_equal_runs_give_equal_bits():
    first, second = (value_and_gradients("several units for an image", np.float32) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_products_of_what_lies_channels_last_are_left_to_xla(calls):
    x = C.input_variable((5, 9, 8))
    inner = C.convolution(C.parameter(init=np.ones((6, 5, 1, 1), np.float32)), C.relu(x), auto_padding=[False])
    z = C.convolution(C.parameter(init=np.ones((7, 6, 1, 1), np.float32)), C.relu(inner), auto_padding=[False])
    value = C.pooling(C.relu(z), C.MAX_POOLING, (9, 8)).eval({x: np.ones((2, 5, 9, 8), np.float32)})
    np.testing.assert_array_equal(value, np.full((2, 7, 1, 1), 30))
    assert len(calls) == 1


def test_three_axes_are_one_task_here_and_planes_in_what_is_exported(calls):
    for case in ("three axes", "many planes and strides", "three axes, dilation"):
        value_and_gradients(case, np.float32)
    assert {len(task.source.sizes) for task in calls} == {5}
    z, _, _, data = convolved(*CASES["three axes"][:3], np.float32)
    function, parameters = to_jax(z)
    text = jax.jit(function).lower(parameters, data).as_text()
    assert "[b, 0, 1, f]" in text
    assert "[b, 0, 1, 2, f]" not in text


def test_infinity_and_nan_stay_in_their_windows():
    x = C.input_variable((1, 5, 5))
    data = np.zeros((1, 1, 5, 5), np.float32)
    data[0, 0, 0, 0], data[0, 0, 4, 4] = np.inf, np.nan
    z = C.convolution(C.parameter(init=np.ones((1, 1, 3, 3), np.float32)), x, auto_padding=[False, True, True])
    gradients, value = C.reduce_sum(z).grad({x: data}, wrt=z.parameters, outputs=[z])
    assert np.isfinite(value[0, 0]).sum() == 25 - 8
    assert np.isnan(gradients).any()


def test_large_filters_and_double_precision_are_left_to_xla(calls):
    x, y = C.input_variable((512, 4, 4)), C.input_variable((4, 6, 6), dtype=np.float64)
    large = C.convolution(C.parameter(init=np.ones((512, 512, 3, 3), np.float32)), x, auto_padding=[False, True, True])
    double = C.convolution(C.parameter(init=np.ones((2, 4, 3, 3))), y, auto_padding=[False, True, True])
    gradient = C.reduce_sum(large).grad({x: np.ones((65, 512, 4, 4), np.float32)}, wrt=large.parameters)
    assert gradient[0, 0, 1, 1] == 65 * 16
    assert double.eval({y: np.ones((65, 4, 6, 6))})[0, 0, 2, 2] == 36
    assert not any(map(rewriting._native_call, calls))


def test_convolutions_in_recurrences():
    np.testing.assert_allclose(*gradients_of_filters(), rtol=1e-4)


def test_threads_compute_side_by_side():
    z, x, w, _ = convolved(*CASES["several units for an image"][:3], np.float32)
    loss = C.reduce_sum(C.square(z))
    data = np.random.default_rng(6).normal(size=(6, 2, 24, 80, 80)).astype(np.float32)
    expected = [loss.grad({x: each}, wrt=[w]) for each in data]
    with ThreadPoolExecutor(4) as threads:
        for result, value in zip(threads.map(lambda each: loss.grad({x: each}, wrt=[w]), data), expected, strict=True):
            np.testing.assert_array_equal(result, value)


PROGRAM = """
import numpy as np, cntkjax as C
x = C.input_variable((3, 8, 8))
z = C.layers.Convolution2D((3, 3), 4, pad=True, init=C.glorot_uniform(seed=1))(x)
trainer = C.Trainer(z, C.reduce_sum(C.square(z)), C.sgd(z.parameters, 1e-4))
data = np.arange(70 * 192, dtype=np.float32).reshape(70, 3, 8, 8) / 1e4
print([trainer.train_minibatch({x: data}) and trainer.previous_minibatch_loss_average for _ in range(3)])
print(C.debugging.compilation_report().loaded, C._best_effort.failures)
"""


def run(folder, **more):
    settings = {**os.environ, "CNTKJAX_CACHE_DIR": str(folder)} | more
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, timeout=100)
    assert not run.stderr
    return run.stdout.splitlines()


def test_a_second_process_takes_the_stored_program(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert first == [first[0], "0 []"]
    assert second == [first[0], "1 []"]


def test_bits_are_the_same_with_any_number_of_threads(tmp_path):
    losses = {run(tmp_path / number, NPROC=number)[0] for number in ("1", "5")}
    assert len(losses) == 1


def test_xla_computes_where_the_library_is_missing(monkeypatch, calls):
    expected = value_and_gradients("3x3", np.float32)
    monkeypatch.setitem(LOWERINGS, "cpu", replace(LOWERINGS["cpu"], convolutions="xla"))
    calls.clear()
    for one, other in zip(expected, value_and_gradients("3x3", np.float32), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert not calls
