"""Gradients of several workers: their formats, buckets and sums. `vmap` with an axis name stands for the workers."""

import jax
import numpy as np
import pytest

from cntkjax.engine.lower.rows import Rows
from cntkjax.parallel.collectives import all_reduce
from cntkjax.parallel.exchange import AXIS
from cntkjax.parallel.gradients import agree, agree_on_formats, conform

HEIGHT = 9
ONE = Rows(np.array([1, 5, 9, 10], np.int32), np.array([[1, 1], [2, 2], [7, 7], [8, 8]], np.float32), HEIGHT)
OTHER = Rows(np.array([0, 5], np.int32), np.array([[3, 3], [4, 4]], np.float32), HEIGHT)  # 9 and 10 are padding


def summed(*workers):
    """The sums of gradients of several workers, as each of them gets them."""
    stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *workers)
    return jax.vmap(all_reduce, axis_name=AXIS)(stacked)


def expected_rows():
    total = np.zeros((HEIGHT, 2), np.float32)
    total[0], total[1], total[5] = 3, 1, 6
    return total


def test_rows_of_several_workers_are_summed():
    like, formats = [[np.zeros((HEIGHT, 2), np.float32)]], [4]
    totals = summed(*(conform([[rows]], like, formats) for rows in (ONE, OTHER, None)[:2]))
    for worker in range(2):
        rows = jax.tree.map(lambda a, worker=worker: a[worker], totals[0][0])
        np.testing.assert_array_equal(rows.dense(), expected_rows())


@pytest.mark.parametrize("formats", [[4], [-1]])
def test_workers_without_data_add_nothing(formats):
    like = [[np.zeros((HEIGHT, 2), np.float32)]]
    totals = summed(*(conform(g, like, formats) for g in ([[ONE]], None, [[OTHER]])))
    first = jax.tree.map(lambda a: a[0], totals[0][0])
    np.testing.assert_array_equal(first.dense() if isinstance(first, Rows) else first, expected_rows())


def test_a_single_worker_agrees_with_itself():
    assert agree("minibatch 1", 5, True, "16 x 3") == (5, True, True)
    assert agree("minibatch 1", 0, False) == (0, False, True)
    assert agree_on_formats("minibatch 1", [[ONE, np.zeros(3)]]) == (4, -1)
    assert agree_on_formats("minibatch 1", None) == ()
