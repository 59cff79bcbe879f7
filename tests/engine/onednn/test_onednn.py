"""Convolutions by oneDNN: the numbers of double precision, in threads, in loops, and from stored programs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.onednn import plans
from cntkjax.engine.xla.platform import LOWERINGS
from tests.engine.convolutions.examples import convolved, gradients_of_filters

pytest.importorskip("numba", reason="oneDNN's extra is not installed")


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    monkeypatch.setitem(LOWERINGS, "cpu", replace(LOWERINGS["cpu"], convolutions="onednn"))


CASES = {
    "3x3": ((5, 9, 8), (7, 5, 3, 3), {}),
    "strides": ((5, 9, 8), (7, 5, 3, 3), {"strides": (2, 2)}),
    "strides, no padding": ((5, 9, 8), (7, 5, 4, 3), {"strides": (3, 2), "auto_padding": [False]}),
    "dilation": ((5, 12, 11), (7, 5, 3, 3), {"dilation": (1, 2, 3)}),
    "one axis": ((5, 13), (7, 5, 4), {}),
    "three axes": ((3, 6, 5, 4), (6, 3, 3, 2, 3), {}),
    "large window": ((2, 11, 11), (3, 2, 9, 9), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_double_precision(case):
    results = {}
    before = set(plans._kept)
    for precision in (np.float64, np.float32):
        z, x, w, data = convolved(*CASES[case], precision)
        gradients = C.reduce_sum(C.square(z)).grad({x: data}, wrt=[x, w])
        results[precision] = [z.eval({x: data}), gradients[x], gradients[w]]
    # The value and both gradients; without AVX-512 oneDNN has no fast one of some windows.
    is_left_to_xla = case in ("dilation", "large window") and "avx512f" not in Path("/proc/cpuinfo").read_text()
    assert len(set(plans._kept) - before) == 3 - is_left_to_xla
    for expected, result in zip(*results.values(), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_groups_and_double_precision_are_left_to_xla():
    before, data = set(plans._kept), np.ones((2, 4, 6, 6))
    x, y = C.input_variable((4, 6, 6)), C.input_variable((4, 6, 6), dtype=np.float64)
    depthwise = C.parameter(init=np.ones((4, 1, 3, 3), np.float32))
    wide = C.parameter(init=np.ones((2, 4, 3, 3)))
    z = C.convolution(depthwise, x, auto_padding=[False, True, True], groups=4)
    assert z.eval({x: data.astype(np.float32)})[0, 0, 2, 2] == 9
    assert C.convolution(wide, y, auto_padding=[False, True, True]).eval({y: data})[0, 0, 2, 2] == 36
    assert set(plans._kept) == before


def test_convolutions_in_recurrences():
    np.testing.assert_allclose(*gradients_of_filters(), rtol=1e-4)


def test_threads_compute_side_by_side():
    z, x, _, _ = convolved(*CASES["3x3"], np.float32, scale=0.5)
    predictor = C.Predictor(z)
    data = np.random.default_rng(6).normal(size=(8, 3, 5, 9, 8)).astype(np.float32)
    expected = [predictor({x: each}) for each in data]
    with ThreadPoolExecutor(4) as threads:
        for results in [threads.map(lambda each: predictor({x: each}), data) for _ in range(5)]:
            for result, value in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, value)


PROGRAM = """
import numpy as np, cntkjax as C
x = C.input_variable((3, 8, 8))
z = C.layers.Convolution2D((3, 3), 4, pad=True, init=C.glorot_uniform(seed=1))(x)
print(repr(float(z.eval({x: np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)}).sum())))
print(C.debugging.compilation_report().loaded, C._best_effort.failures)
"""


def run(program, folder, **variables):
    command = [sys.executable, "-c", program]
    settings = {**os.environ, "CNTKJAX_ONEDNN": "1", "CNTKJAX_CACHE_DIR": str(folder), **variables}
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=100)


def test_a_second_process_takes_the_stored_program(tmp_path):
    first, second = run(PROGRAM, tmp_path), run(PROGRAM, tmp_path)
    assert not first.stderr and not second.stderr
    assert first.stdout.split()[0] == second.stdout.split()[0]
    assert second.stdout.split()[1:] == ["1", "[]"]


def test_a_missing_package_is_named_and_xla_computes(tmp_path):
    missing = run("import sys; sys.modules['llvmlite'] = None\n" + PROGRAM, tmp_path)
    assert "pip install 'cntkjax[onednn]'" in missing.stderr
    plain = run(PROGRAM, tmp_path, CNTKJAX_ONEDNN="0")
    assert float(missing.stdout.split()[0]) == pytest.approx(float(plain.stdout.split()[0]), rel=1e-5)
