"""Tensors filled with numbers: one-hot, casts, assignment."""

import numpy as np
import pytest

import cntkjax as C


@pytest.mark.parametrize("sparse", [True, False])
def test_one_hot_of_numbers_that_are_no_class_is_zero_as_in_cntk(sparse):
    i = C.input_variable(1)
    f = C.times(C.one_hot(i, 3, sparse_output=sparse), np.float32([[1], [2], [4]]))
    data = np.float32([0, 2.9, 3, -1, -0.5, np.nan, np.inf, 1e9])[:, None]
    assert f.eval({i: data}).ravel().tolist() == [1, 4, 0, 0, 0, 0, 0, 0]
