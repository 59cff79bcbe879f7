"""Grids: every sample has one cell, which the layout finds, and few shapes are used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.packing import WASTE, Packer, Sizes, bucket, first_fit

lengths_lists = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def unpacked(grid, cells):
    """The sequences in a grid, by its row, start and length."""
    return [cells[s : s + n, r] for r, s, n in zip(grid.row, grid.start, grid.length, strict=True) if n]


@given(lengths_lists, st.booleans())
@settings(max_examples=60)
def test_packing_and_unpacking_gives_the_sequences_back(lengths, has_loop):
    lengths = np.array(lengths, np.int32)
    packer = Packer(has_loop)
    grid = packer.grid(lengths, len(lengths) + 3)
    ends = np.cumsum(lengths)
    samples = np.arange(ends[-1])
    for sequence, begin, end in zip(unpacked(grid, samples[grid.index]), ends - lengths, ends, strict=True):
        np.testing.assert_array_equal(sequence, samples[begin:end])


@given(lengths_lists, st.booleans())
@settings(max_examples=40)
def test_layout_inside_the_program_agrees_with_the_grid(lengths, has_loop):
    lengths = np.array(lengths, np.int32)
    packer = Packer(has_loop)
    grid = packer.grid(lengths, len(lengths) + 3)
    layout = grid.layout
    cells = layout.seq, layout.position, layout.mask, layout.remaining
    seq, position, mask, remaining = map(np.asarray, cells)
    assert mask.sum() == lengths.sum()
    for i, (row, start, n) in enumerate(zip(grid.row, grid.start, lengths, strict=False)):
        cells = slice(start, start + n), row
        assert (seq[cells] == i).all() and mask[cells].all()
        np.testing.assert_array_equal(position[cells], np.arange(n))
        np.testing.assert_array_equal(remaining[cells], np.arange(n)[::-1])


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


def test_number_of_shapes_stays_small_for_minibatches_of_a_fixed_size():
    rng = np.random.default_rng(0)
    packer, sizes = Packer(has_loop=True), Sizes(varies=True)
    shapes, cells, samples = set(), 0, 0
    for _ in range(300):
        lengths = []
        while sum(lengths) < 500:
            lengths.append(int(np.clip(rng.gamma(6, 2), 1, 46)))
        grid = packer.grid(np.array(lengths, np.int32), sizes.choose(len(lengths)))
        shapes.add((grid.index.shape, grid.simple, len(grid.length)))
        cells, samples = cells + grid.index.size, samples + sum(lengths)
    assert len(shapes) <= 8, shapes
    assert cells <= 1.35 * samples


def test_number_of_batch_sizes_grows_with_the_logarithm():
    sizes = Sizes()
    for n in range(1, 5001):
        assert n <= sizes.choose(n) <= max(2 * n, 1)
    assert len(sizes.used) <= 5 * np.log2(5000)


def test_a_repeated_minibatch_size_is_not_padded():
    sizes = Sizes()
    assert [sizes.choose(n) for n in (250, 250, 100, 250)] == [250, 250, 100, 250]
    assert sizes.choose(240) == 250  # the last minibatch of a sweep uses the existing program


def test_equal_lengths_are_side_by_side_without_padding():
    packer = Packer(has_loop=True)
    grid = packer.grid(np.full(64, 32, np.int32), 64)
    assert grid.index.shape == (32, 64) and grid.simple and grid.full


@pytest.mark.parametrize("has_loop", [False, True])
def test_uneven_lengths_waste_little(has_loop):
    lengths = np.array([46, *[5] * 60], np.int32)
    packer = Packer(has_loop)
    time, rows = packer.grid(lengths, len(lengths) + 3).index.shape
    assert time * rows <= 2 * WASTE * lengths.sum()  # one sequence a row would take eight times as much


def test_buckets_are_at_most_a_quarter_larger():
    for n in range(1, 3000):
        assert n <= bucket(n) <= max(1.25 * n, n + 1)
