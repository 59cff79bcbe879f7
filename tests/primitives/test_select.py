"""Computed indices that are not those of an axis select NaN."""

import jax
import numpy as np
import pytest

import cntkjax as C
from tests.engine.run.test_index_check import table

TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
BAD = pytest.mark.parametrize("bad", [3, -1, np.nan, np.inf, 1e9])


@TYPES
@BAD
def test_a_computed_index_gives_nan_and_no_gradient(bad, dtype):
    weights, i = table(dtype), C.input_variable(2, dtype=dtype)
    f = C.gather(weights, i * C.constant(np.ones(2, dtype)))
    data = np.array([[0, bad], [2, 2]], dtype)
    expected = np.array([[[0, 1], [np.nan] * 2], [[4, 5], [4, 5]]])
    np.testing.assert_array_equal(f.eval({i: data}), expected)
    gradient = C.reduce_sum(f).grad({i: data}, wrt=[weights])
    assert gradient.tolist() == [[1, 1], [0, 0], [2, 2]]


def test_data_that_are_on_the_device_count_as_computed():
    i = C.input_variable(1)
    f = C.gather(table(), i)
    ids = (i + 1).eval({i: [[1], [2]]}, as_numpy=False)
    assert np.isnan(f.eval({i: ids})).tolist() == [[[False] * 2], [[True] * 2]]
    assert np.isnan(f.eval({i: jax.numpy.array([[1.0], [5.0]])})).tolist() == [[[False] * 2], [[True] * 2]]


def test_checked_mode_names_the_gather_of_a_computed_index():
    i = C.input_variable(1)
    f = C.gather(table(), i + 1)
    C.debugging.set_checked_mode(True)
    try:
        with pytest.raises(RuntimeError, match=r"(?s)NaN in the result of Gather.*not in the range from 0 to 2"):
            f.eval({i: [[2]]})
        f.eval({i: [[1]]})
    finally:
        C.debugging.set_checked_mode(False)
