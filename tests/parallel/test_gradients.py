"""Gradients that are rows, joined from several workers."""

import numpy as np

from cntkjax.parallel.gradients import add_rows


def test_rows_of_several_workers_add_up():
    one = np.array([1, 5, 9, 10], np.int32), np.array([[1, 1], [2, 2], [7, 7], [8, 8]], np.float32)  # 9 and 10: padding
    other = np.array([0, 5, 9], np.int32), np.array([[3, 3], [4, 4], [9, 9]], np.float32)
    made = add_rows([one, other], height=9)
    assert made.height == 9
    np.testing.assert_array_equal(made.indices, [0, 1, 5])
    np.testing.assert_array_equal(made.values, [[3, 3], [1, 1], [6, 6]])


def test_their_number_is_rounded_up_with_rows_that_stand_for_nothing():
    indices = np.arange(0, 18, 2, dtype=np.int32)
    made = add_rows([(indices, np.ones((9, 1), np.float32))], height=20)
    np.testing.assert_array_equal(made.indices, [*indices, 20])
    np.testing.assert_array_equal(made.dense()[:, 0], [1, 0] * 9 + [0, 0])


def test_no_rows_at_all():
    made = add_rows([(np.array([4], np.int32), np.ones((1, 2), np.float32))], height=4)
    assert not np.asarray(made.dense()).any()
