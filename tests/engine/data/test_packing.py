"""Grids: every sample has one cell, which the layout finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.packing import GridShape, bucket, columns, first_fit, pack, pack_with_more_rows
from cntkjax.engine.data.shapes import AxisTraits

lengths_lists = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def grid_of(lengths, has_loop):
    """The sequences in the cheapest grid, with room for three more."""
    shape = AxisTraits(has_loop).grid(len(lengths) + 3, int(lengths.max()), int(lengths.sum()))
    return pack_with_more_rows(lengths, len(lengths) + 3, shape)


def unpacked(grid, cells):
    """The sequences in a grid, by its row, start and length."""
    return [cells[s : s + n, r] for r, s, n in zip(grid.row, grid.start, grid.length, strict=True) if n]


@given(lengths_lists, st.booleans())
@settings(max_examples=60)
def test_packing_and_unpacking_gives_the_sequences_back(lengths, has_loop):
    lengths = np.array(lengths, np.int32)
    grid = grid_of(lengths, has_loop)
    ends = np.cumsum(lengths)
    samples = np.arange(ends[-1])
    for sequence, begin, end in zip(unpacked(grid, samples[grid.index]), ends - lengths, ends, strict=True):
        np.testing.assert_array_equal(sequence, samples[begin:end])


@given(lengths_lists, st.integers(1, 30), st.integers(0, 60))
@settings(max_examples=60)
def test_first_fit_never_overlaps(lengths, rows, room):
    time = max(lengths) + room
    positions = first_fit(np.array(lengths), time, rows)
    if positions is None:
        assert rows * time < sum(lengths) + rows * max(lengths)  # nearly full: otherwise everything fits
        return
    use_counts = np.zeros((time, rows), int)
    for n, row, start in zip(lengths, *positions, strict=True):
        use_counts[start : start + n, row] += 1
    assert use_counts.max() == 1 and use_counts.sum() == sum(lengths)


def test_equal_lengths_are_side_by_side_without_padding():
    lengths = np.full(64, 32, np.int32)
    shape = AxisTraits(has_loop=True).grid(64, 32, 64 * 32)
    assert shape == GridShape(32, 64, True) and pack(lengths, 64, shape).full


@pytest.mark.parametrize("has_loop", [False, True])
def test_uneven_lengths_waste_little(has_loop):
    lengths = np.array([46, *[5] * 60], np.int32)
    time, rows = grid_of(lengths, has_loop).index.shape
    assert time * rows <= 1.4 * lengths.sum()  # one sequence a row would take eight times as much


def test_sequences_that_do_not_fit_have_no_grid():
    lengths = np.array([3, 3, 3], np.int32)
    assert pack(lengths, 3, GridShape(2, 9, False)) is None
    assert pack(lengths, 3, GridShape(5, 2, False)) is None  # ten cells, but no three in a row are left
    assert pack(lengths, 3, GridShape(6, 2, False)) is not None


def test_buckets_are_at_most_a_quarter_larger():
    for n in range(1, 3000):
        assert n <= bucket(n) <= max(1.25 * n, n + 1)


@given(lengths_lists)
def test_samples_have_columns_of_their_own_step_by_step(lengths):
    lengths = np.array(lengths)
    places = columns(lengths)
    time = lengths.max()
    assert places.number == time * places.rows
    for of_sample, direction in ((places.of_sample, 1), (places.backwards, -1)):
        assert len(np.unique(of_sample)) == len(of_sample) == lengths.sum()
        assert of_sample.min() >= 0 and of_sample.max() < places.number
        for sequence in np.split(of_sample, np.cumsum(lengths)[:-1]):
            assert (np.diff(sequence) == direction * places.rows).all()


def test_columns_of_pieces_follow_their_slots():
    """Sequence 0 goes on in slot 2 of the reader, and another one begins behind it."""
    assert columns(np.array([3, 1, 2]), np.array([0, 2, 2])).of_sample.tolist() == [0, 2, 4, 1, 3, 5]
