"""Gradients in few bits, against CNTK and a NumPy model of Seide et al. 2014. `vmap` stands for the workers."""

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
from cntkjax.parallel.collectives import assembled
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


@partial(jax.jit, static_argnames="bits")
def exchange(gradients, errors, bits=1):
    """What each worker gets; arrays have the workers as their first axis."""
    reduce = partial(quantization.all_reduce_in_bits, bits=bits, axis=AXIS)
    return jax.vmap(reduce, axis_name=AXIS)(gradients, errors)


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
            quantized = quantize(matrix, 1)
            for c, column in enumerate(matrix):
                positive, sent = model_quantize(column)
                np.testing.assert_array_equal(quantized[0][c], positive)
                np.testing.assert_array_equal(dequantize(*quantized, 1)[c], sent, err_msg=str(i))


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


GRADIENTS_OF_TWO = [  # a row, a value far from the others, a tensor and a scalar
    [[[-3, -1, 0.5, 2, 7, 1.5, -0.25, 3]], [[1, 2, -1, 0.5, -0.5, -2, 3, 1]]],
    [[-8] + [0] * 63, [0] * 64],
    [[[[1, 5], [2, -1]], [[3, 3], [0, 1]]], [[[1, 5], [2, -1]], [[3, -3], [0, 1]]]],
    [2, 0],
]
CNTKS_SUMS_IN_BITS = {  # of two steps, from CNTK 2.7 with two MPI ranks; of the second row the first value
    2: [
        [[[0, 0, 0, 0, 8.666668, 0, 0, 0]], [[-20.182, 0, 0, 0, 20.182, 0, 0, 20.182]]],
        [-0.8888888, -2.074074],
        [[[[0, 36.25969], [0, 0]], [[0, 0], [0, 7.111111]]], [[[0, 0], [0, 0]], [[0, 0], [0, -5.484344]]]],
        [0, 0],
    ],
    4: [
        [[[-1.6139, 0, -1.6139, 3.227799, 6.455599, 0, 3.227799, 4.8417]],
         [[-3.329041, 3.329041, 1.66452, 1.66452, 6.658081, -1.66452, 3.329041, 3.329041]]],
        [-1.742222, -3.600593],
        [[[[4.586525, 13.75958], [2.844444, -1.422222]], [[7.240772, 0], [0, 2.56]]],
         [[[0, 8.361841], [3.736042, -1.868021]], [[5.806828, 0], [0, 1.887382]]]],
        [2.275556, 1.972147],
    ],
    8: [
        [[[-1.948129, 1.071471, -0.4870319, 2.532568, 6.526233, -0.4870319, 2.727381, 3.993665]],
         [[-2.061339, 0.8834314, -0.588954, 2.453977, 6.478497, -0.588954, 2.846613, 4.024521]]],
        [-1.984344, -3.976471],
        [[[[2.028532, 9.917267], [3.936948, -1.968474]], [[6.0131, 0], [0, 1.993079]]],
         [[[2.043602, 9.990948], [3.999253, -1.999626]], [[5.999929, 0], [0, 1.999982]]]],
        [2.015718, 1.999907],
    ],
    16: [
        [[[-2.000081, 1.00004, -0.4998302, 2.500291, 6.500072, -0.4998302, 2.750016, 3.999781]],
         [[-2.000064, 1.000031, -0.500206, 2.49951, 6.500018, -0.500206, 2.749613, 4.000508]]],
        [-1.999939, -3.9999084],
        [[[[1.999969, 9.999849], [4.000005, -2.000003]], [[6.000061, 0], [0, 1.999979]]],
         [[[2, 9.999998], [3.999999, -2]], [[6, 0], [0, 2]]]],
        [2.000061, 2],
    ],
}


@pytest.mark.parametrize("bits", CNTKS_SUMS_IN_BITS)
def test_two_workers_sum_gradients_in_more_bits_as_cntk_does(bits):
    drawn = [np.array(both, np.float32) for both in GRADIENTS_OF_TWO]
    errors = jax.tree.map(lambda a: np.stack([a] * 2), no_errors([g[0] for g in drawn], 2))
    for step in range(2):
        sums, errors = exchange(drawn, errors, bits)
        np.testing.assert_allclose(sums[1][:, 1:], 0, atol=1e-6)
        sums[1] = sums[1][:, 0]
        for total, expected in zip(sums, CNTKS_SUMS_IN_BITS[bits], strict=True):
            np.testing.assert_allclose(total, [expected[step]] * 2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", CNTKS_SUMS_IN_BITS)
def test_zeros_stay_zeros(bits):
    zeros = [np.zeros((2, 3, 5), np.float32)]
    errors = jax.tree.map(lambda a: np.stack([a] * 2), no_errors([zeros[0][0]], 2))
    (total,), errors = exchange(zeros, errors, bits)
    assert not np.asarray(total).any() and not any(np.asarray(a).any() for a in (*errors.own, *errors.stripes))


@pytest.mark.parametrize("magnitude", [1e-30, 1, 1e30])
def test_parts_of_sums_have_the_precision_of_float16_at_any_scale(magnitude):
    drawn = [np.float32(magnitude) * g for g in gradients(3, 0)]
    divided = jax.jit(jax.vmap(partial(quantization.reduce_scatter_in_16_bits, axis=AXIS), axis_name=AXIS))(drawn)
    for own, gradient in zip(divided, drawn, strict=True):
        total = assembled(own, gradient.shape[1:])
        np.testing.assert_allclose(total, gradient.sum(0), rtol=1e-3, atol=3e-3 * magnitude)


def test_all_gradients_but_those_of_half_precision_and_with_columns_of_one_value_travel_in_1_bit():
    sizes = {(2048,): True, (2048, 10): True, (3, 5): True, (64, 3, 3, 3): True, (8, 1): False, (1,): False, (): False}
    for dtype in np.float32, np.float64:
        assert {shape: quantization.is_compressible(shape, np.dtype(dtype), 1) for shape in sizes} == sizes
        assert all(quantization.is_compressible(shape, np.dtype(dtype), 2) for shape in sizes)
    assert not any(quantization.is_compressible((100, 100), np.dtype(np.float16), bits) for bits in (1, 2, 16))


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
    assert sent["16"] <= 0.502 * sent["32"]
    assert sent["1"] <= sent["32"] / 25
    assert sent["32 divided"] <= 1.001 * sent["32"]
    assert sent["16 divided"] <= 0.751 * sent["32"]
