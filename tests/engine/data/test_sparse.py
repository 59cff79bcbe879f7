"""Sparse samples in programs compute what dense ones do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.data.sparse import Sparse, dense

FLOAT = np.dtype(np.float32)
LISTS = Sparse(jnp.array([[0, 2], [1, 0], [2, 2]]), jnp.array([[1.0, 2], [3, 0], [4, 5]]), (3,), FLOAT)
ONE_HOT = Sparse(jnp.array([2, 0, 3]), None, (2, 2), FLOAT)
MATRIX = np.arange(8, dtype=np.float32).reshape(4, 2)


def test_elements_of_one_index_are_added_up_and_unused_entries_add_nothing():
    assert LISTS.todense().tolist() == [[1, 0, 2], [0, 3, 0], [0, 0, 9]]
    assert ONE_HOT.todense().tolist() == [[[0, 0], [1, 0]], [[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert (LISTS.width, ONE_HOT.width) == (3, 4) and ONE_HOT.is_one_hot and not LISTS.is_one_hot


@pytest.mark.parametrize("samples", [LISTS, ONE_HOT], ids=["lists", "one-hot"])
def test_a_product_gathers_rows(samples):
    matrix = MATRIX[: samples.width]
    np.testing.assert_array_equal(samples.dot(matrix), samples.todense().reshape(3, -1) @ matrix)
    vector = matrix[:, 0]
    np.testing.assert_array_equal(samples.dot(vector), samples.todense().reshape(3, -1) @ vector)


@pytest.mark.parametrize("samples", [LISTS, ONE_HOT], ids=["lists", "one-hot"])
def test_a_product_from_the_other_side_picks_elements(samples):
    sample = jax.tree.map(lambda a: a[0], samples)
    x = MATRIX.T[:, : samples.width]
    np.testing.assert_array_equal(sample.pick(x), x @ sample.todense().ravel())
    gradient = jax.grad(lambda x: jnp.sum(sample.pick(x) * np.float32([1, 10])))(x)
    np.testing.assert_array_equal(gradient, np.outer([1, 10], sample.todense().ravel()))


def test_another_type_is_that_of_the_elements():
    assert LISTS.astype(np.float16).todense().dtype == ONE_HOT.astype(np.float16).todense().dtype == np.float16


def test_arrays_are_dense_already():
    assert dense(MATRIX) is MATRIX
    np.testing.assert_array_equal(dense(ONE_HOT), ONE_HOT.todense())


def test_results_of_double_precision_keep_it_outside_of_programs():
    samples = Sparse(np.array([[0], [2]]), np.array([[0.1], [0.2]]), (3,), np.dtype(np.float64))
    assert np.asarray(dense(samples)).tolist() == [[0.1, 0, 0], [0, 0, 0.2]]
    x = C.input_variable((2,), dtype=np.float64)
    value = C.one_hot(x, 3, sparse_output=True).eval({x: [[1.0, 2]]})
    assert value.dtype == np.float64 and value.tolist() == [[[0, 1, 0], [0, 0, 1]]]
