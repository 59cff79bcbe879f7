"""Sums over all workers. `vmap` with an axis name stands for the workers."""

import numpy as np
import pytest

from tests.parallel.test_gradients import summed


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays_of_all_shapes_are_summed(dtype):
    shapes = [(3, 4), (), (5,), (2, 1, 2)]
    rng = np.random.default_rng(0)
    workers = [[rng.integers(-9, 9, shape).astype(dtype) for shape in shapes] for _ in range(3)]
    for i, total in enumerate(summed(*workers)):
        assert total.dtype == dtype
        np.testing.assert_array_equal(total[2], sum(worker[i] for worker in workers))
