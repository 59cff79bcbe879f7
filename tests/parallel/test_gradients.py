"""Row-sparse gradients, summed over several workers."""

import numpy as np

from cntkjax.parallel.gradients import add_rows


def test_rows_of_several_workers_are_summed():
    one = np.array([1, 5, 9, 10], np.int32), np.array([[1, 1], [2, 2], [7, 7], [8, 8]], np.float32)  # 9 and 10: padding
    other = np.array([0, 5, 9], np.int32), np.array([[3, 3], [4, 4], [9, 9]], np.float32)
    total = add_rows([one, other], height=9)
    assert total.height == 9
    np.testing.assert_array_equal(total.indices, [0, 1, 5])
    np.testing.assert_array_equal(total.values, [[3, 3], [1, 1], [6, 6]])


def test_the_number_of_rows_is_padded():
    indices = np.arange(0, 18, 2, dtype=np.int32)
    total = add_rows([(indices, np.ones((9, 1), np.float32))], height=20)
    np.testing.assert_array_equal(total.indices, [*indices, 20])
    np.testing.assert_array_equal(total.dense()[:, 0], [1, 0] * 9 + [0, 0])


def test_rows_beyond_the_height_are_ignored():
    total = add_rows([(np.array([4], np.int32), np.ones((1, 2), np.float32))], height=4)
    assert not np.asarray(total.dense()).any()
