"""Gradients in 1 and 16 bits, against a NumPy model of Seide et al. 2014. `vmap` stands for the workers."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from cntkjax.parallel import quantization
from cntkjax.parallel.exchange import AXIS
from cntkjax.parallel.quantization import dequantize, no_errors, quantize

SHAPES = [(70, 3), (4, 96), (5, 2, 35), (7,)]


def model_quantize(column):
    """Signs of a column of values, and the values that they stand for."""
    positive = [v >= 0 for v in column]
    groups = [[v for v, p in zip(column, positive, strict=True) if p == side] for side in (False, True)]
    low, high = (np.float32(sum(g)) / np.float32(len(g)) if g else np.float32(0) for g in groups)
    return positive, np.array([high if p else low for p in positive], np.float32)


def model_columns(gradient):
    return gradient.reshape(-1, gradient.shape[-1])


class Model:
    """The exchange of the paper, value by value: each column is summed by one worker."""

    def __init__(self):
        self.errors, self.sum_errors = {}, {}

    def exchange(self, gradients):
        """The sum of gradients, in columns; `gradients` is [worker][gradient]."""
        of_workers = zip(*gradients, strict=True)
        return [self._sum(i, [model_columns(g) for g in parts]) for i, parts in enumerate(of_workers)]

    def _sum(self, i, matrices):
        total = []
        for c in range(len(matrices[0])):
            aggregate = np.zeros(matrices[0].shape[1], np.float32)
            for worker, matrix in enumerate(matrices):
                column = matrix[c] + self.errors.get((i, c, worker), np.float32(0))
                _, sent = model_quantize(column)
                self.errors[i, c, worker] = column - sent
                aggregate = aggregate + sent
            aggregate = aggregate + self.sum_errors.get((i, c), np.float32(0))
            _, sent = model_quantize(aggregate)
            self.sum_errors[i, c] = aggregate - sent
            total.append(sent)
        return np.array(total)


EXCHANGE = jax.jit(jax.vmap(partial(quantization.all_reduce_in_1_bit, axis=AXIS), axis_name=AXIS))


def exchange(gradients, errors):
    """What each worker gets; arrays have the workers as their first axis."""
    return EXCHANGE(gradients, errors)


def initial_errors(workers):
    like = [np.zeros(shape, np.float32) for shape in SHAPES]
    return jax.tree.map(lambda a: np.stack([a] * workers), no_errors(like, workers))


def gradients(workers, seed, integers=False):
    rng = np.random.default_rng(seed)
    draw = partial(rng.integers, -9, 9) if integers else lambda size: rng.normal(size=size)
    return [draw(size=(workers, *shape)).astype(np.float32) for shape in SHAPES]


def columns(sums):
    return [model_columns(np.asarray(total)[0]) for total in sums]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_quantization_is_exactly_that_of_the_paper(workers):
    """For integers, whose sums do not depend on their order; see the next test for what follows."""
    drawn = gradients(workers, 0, integers=True)
    for i, gradient in enumerate(drawn):
        for worker in range(workers):
            matrix = model_columns(gradient[worker])
            quantized = quantize(matrix)
            for c, column in enumerate(matrix):
                positive, sent = model_quantize(column)
                np.testing.assert_array_equal(quantized[0][c], positive)
                np.testing.assert_array_equal(dequantize(*quantized)[c], sent, err_msg=str(i))


CNTKS_SUMS = [  # of three steps, from CNTK 2.7 with two MPI ranks
    [[[3.75, 3.75, -6.5], [-4.33333, -4.33333, -4.33333]], [[-3.5, 5, -3.5], [7.33333, 7.33333, 7.33333]],
     [[-10.875, 5.75, -10.875], [-1, -1, -1]]],
    [[[[5, 5], [9.5, -5.5]], [[2.5, 2.5], [9, 9]]], [[[-6, -6], [2, 2]], [[-13.5, 7.5], [13.5, -5.5]]],
     [[[-3.5, -3.5], [-4.5, -4.5]], [[-2.5, -2.5], [2.5, 2.5]]]],
    [[-2.5, 6, -2.5], [-8.66667, -8.66667, -8.66667], [5.66667, -5.33333, 5.66667]],
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_workers_sum_a_matrix_a_tensor_and_a_bias_in_1_bit_as_cntk_does(dtype):
    like = [np.zeros(np.shape(sums[0]), dtype) for sums in CNTKS_SUMS]
    errors = jax.tree.map(lambda a: np.stack([a] * 2), no_errors(like, 2))
    for step in range(3):
        seeds = [[100 * step + 10 * i + rank for rank in range(2)] for i in range(len(like))]
        drawn = [
            np.array([np.random.RandomState(seed).randint(-9, 9, g.shape) for seed in both], dtype)
            for both, g in zip(seeds, like, strict=True)
        ]
        with jax.enable_x64(dtype == np.float64):
            sums, errors = exchange(drawn, errors)
        for total, expected in zip(sums, CNTKS_SUMS, strict=True):
            assert total.dtype == dtype
            np.testing.assert_allclose(total, [expected[step]] * 2, rtol=1e-5)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_several_steps_follow_the_paper(workers):
    model, errors = Model(), initial_errors(workers)
    for step in range(4):
        drawn = gradients(workers, step)
        sums, errors = exchange(drawn, errors)
        expected = model.exchange([[g[worker] for g in drawn] for worker in range(workers)])
        for total, reference in zip(columns(sums), expected, strict=True):
            np.testing.assert_allclose(total, reference, rtol=1e-5, atol=1e-5)


def test_all_workers_get_the_same_and_nothing_is_lost():
    workers, errors = 4, initial_errors(4)
    sent, applied = [np.zeros(shape) for shape in SHAPES], [np.zeros(shape) for shape in SHAPES]
    for step in range(5):
        drawn = gradients(workers, step)
        sums, errors = exchange(drawn, errors)
        for i, total in enumerate(np.asarray(s) for s in sums):
            assert (total == total[:1]).all()
            sent[i], applied[i] = sent[i] + drawn[i].sum(0), applied[i] + total[0]
    rest = quantization.restored_errors(jax.tree.map(np.asarray, errors), 0, 1).own  # all for a single worker
    for done, error, given in zip(applied, rest, sent, strict=True):
        np.testing.assert_allclose(model_columns(done) + error, model_columns(given), rtol=1e-4, atol=1e-4)


def test_errors_are_restored_to_as_many_workers_and_shared_by_others():
    random, shapes = np.random.default_rng(1), initial_errors(4)
    saved = jax.tree.map(lambda a: random.normal(size=a.shape).astype(np.float32), shapes)
    for worker in range(4):
        own, stripes = quantization.restored_errors(saved, worker, 4)
        for array, whole in zip([*own, *stripes], [*saved.own, *saved.stripes], strict=True):
            np.testing.assert_array_equal(array, whole[worker])
    for workers in 1, 3:
        shares = [quantization.restored_errors(saved, worker, workers) for worker in range(workers)]
        for i, (own, stripes) in enumerate(zip(saved.own, saved.stripes, strict=True)):
            total = own.sum(0) + stripes.reshape(-1, stripes.shape[-1])[: own.shape[1]]
            np.testing.assert_allclose(sum(share.own[i] for share in shares), total, rtol=1e-5, atol=1e-6)
            assert not any(np.asarray(share.stripes[i]).any() for share in shares)
            assert {share.stripes[i].shape for share in shares} == {(-(-own.shape[1] // workers), own.shape[2])}


@pytest.mark.parametrize("magnitude", [1e-30, 1, 1e30])
def test_16_bits_have_the_precision_of_float16_at_any_scale(magnitude):
    drawn = [np.float32(magnitude) * g for g in gradients(3, 0)]
    sums = jax.jit(jax.vmap(partial(quantization.all_reduce_in_16_bits, axis=AXIS), axis_name=AXIS))(drawn)
    for total, gradient in zip(sums, drawn, strict=True):
        np.testing.assert_allclose(total[1], gradient.sum(0), rtol=1e-3, atol=3e-3 * magnitude)
        assert (np.asarray(total) == np.asarray(total)[:1]).all()


def test_zeros_stay_zeros_in_16_bits():
    zeros = [np.zeros((2, 5), np.float32)]
    (total,) = jax.vmap(partial(quantization.all_reduce_in_16_bits, axis=AXIS), axis_name=AXIS)(zeros)
    assert not np.asarray(total).any()


def test_all_gradients_but_those_of_half_precision_and_with_columns_of_one_value_travel_in_1_bit():
    sizes = {(2048,): True, (2048, 10): True, (3, 5): True, (64, 3, 3, 3): True, (8, 1): False, (1,): False, (): False}
    for dtype in np.float32, np.float64:
        assert {shape: quantization.is_compressible(shape, np.dtype(dtype), 1) for shape in sizes} == sizes
    assert not quantization.is_compressible((100, 100), np.dtype(np.float16), 1)


@pytest.mark.parametrize("workers", [2, 4])
def test_traffic_of_a_large_network(workers):
    """A network of 55 MB: 32 bits send it at most twice, 16 half of that, and 1 bit a 25th.

    With divided state updates travel instead of sums, in 32 bits.
    """
    script = Path(__file__).with_name("traffic.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2] / "src"), "JAX_PLATFORMS": "cpu"}
    printed = subprocess.run(
        [sys.executable, script, str(workers)], capture_output=True, text=True, check=True, env=environment
    ).stdout
    sent = json.loads(printed.splitlines()[-1])
    assert sent["32"] <= 2 * 55e6
    assert sent["16"] <= 0.501 * sent["32"]
    assert sent["1"] <= sent["32"] / 25
    assert sent["32 divided"] <= 1.001 * sent["32"]
    assert sent["16 divided"] <= 0.751 * sent["32"]
