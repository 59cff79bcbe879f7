"""The positions of windows: numbers recorded from CNTK 2.7 (with one-hot kernels, moved over an axis)."""

import numpy as np
import pytest

from cntkjax.graph.shape import FREE
from cntkjax.primitives._window import Window, per_axis, place

# size, stride, length -> positions, cells of the first window before the axis
PADDED = [
    (3, 1, 8, 8, 1), (3, 3, 3, 1, 0), (2, 2, 11, 6, 0), (6, 1, 8, 8, 2), (4, 1, 5, 5, 1), (4, 3, 6, 2, 0),
    (2, 3, 11, 4, 0), (5, 2, 6, 3, 2), (1, 3, 3, 1, -1), (4, 4, 8, 2, 0), (5, 4, 8, 2, 1), (6, 4, 6, 2, 2),
]
UNPADDED = [(2, 3, 2, 1), (3, 3, 5, 1), (5, 4, 7, 1), (5, 4, 11, 2), (3, 2, 8, 3)]
# length, size, stride, padded -> largest cell of each window where positions are rounded up
CEIL = [
    (8, 2, 3, False, [2, 5, 8]), (8, 3, 2, False, [3, 5, 7, 8]), (5, 5, 4, True, [3, 5]),
    (8, 4, 2, True, [3, 5, 7, 8, 8]),
    (6, 3, 3, True, [2, 5, 6]), (7, 5, 3, True, [3, 6, 7]), (11, 4, 4, True, [2, 6, 10, 11]),
]


@pytest.mark.parametrize(("size", "stride", "length", "count", "before"), PADDED)
def test_automatic_padding_matches_cntk(size, stride, length, count, before):
    window = place(length, size, stride, auto=True)
    assert (window.count, window.before) == (count, before)
    assert (count - 1) * stride + size == length + window.before + window.after


@pytest.mark.parametrize(("size", "stride", "length", "count"), UNPADDED)
def test_windows_without_padding_start_at_the_first_cell(size, stride, length, count):
    window = place(length, size, stride)
    assert (window.count, window.before) == (count, 0)


@pytest.mark.parametrize(("length", "size", "stride", "auto", "last"), CEIL)
def test_rounding_up_adds_a_partial_window(length, size, stride, auto, last):
    window = place(length, size, stride, auto=auto, ceil=True)
    ends = np.arange(window.count) * stride - window.before + size
    np.testing.assert_array_equal(np.minimum(ends, length), last)


def test_explicit_padding_is_added_to_the_axis():
    assert place(5, 3, stride=2, before=1, after=2) == Window(3, 2, 1, before=1, after=1, count=3)


def test_the_extent_of_dilated_windows():
    window = place(9, 3, dilation=2, auto=True)
    assert (window.extent, window.before, window.after, window.count) == (5, 2, 2, 9)


def test_a_free_length_stays_free():
    assert place(FREE, 3, auto=True).count == FREE


def test_the_first_value_is_repeated_for_leading_axes():
    assert per_axis((2, 3), 4) == (2, 2, 2, 3)
    assert per_axis((2, 3), 4, channel=7) == (7, 2, 2, 3)
    with pytest.raises(ValueError, match="3 values for 2 axes"):
        per_axis((1, 2, 3), 2)
