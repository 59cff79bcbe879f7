"""The layout of a grid: which sequence and step each cell holds, and where each step is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.layout import Batch, Layout
from tests.engine.data.test_packing import grid_of, lengths_lists


@given(lengths_lists, st.booleans())
@settings(max_examples=15)  # each compiles a program
def test_layout_inside_the_program_agrees_with_the_grid(lengths, has_loop):
    lengths = np.array(lengths, np.int32)
    grid = grid_of(lengths, has_loop)
    cells = jax.jit(lambda layout: (layout.seq, layout.position, layout.mask, layout.remaining))(grid.layout)
    seq, position, mask, remaining = map(np.asarray, cells)
    assert mask.sum() == lengths.sum()
    for i, (row, start, n) in enumerate(zip(grid.row, grid.start, lengths, strict=False)):
        cells = slice(start, start + n), row
        assert (seq[cells] == i).all() and mask[cells].all()
        np.testing.assert_array_equal(position[cells], np.arange(n))
        np.testing.assert_array_equal(remaining[cells], np.arange(n)[::-1])


# Sequence 0 in row 0; 1 and 2 end to end in row 1, where a step is left; 3 has no steps.
LAYOUT = Layout(*(jnp.array(a, jnp.int32) for a in ([0, 1, 1, 0], [0, 0, 2, 0], [4, 2, 1, 0])), time=4, rows=2)
MASK = [[1, 1], [1, 1], [1, 1], [1, 0]]


def test_cells_know_their_sequence_and_step():
    assert LAYOUT.mask.astype(int).tolist() == MASK
    assert jnp.where(LAYOUT.mask, LAYOUT.seq, -1).tolist() == [[0, 1], [0, 1], [0, 2], [0, -1]]
    assert jnp.where(LAYOUT.mask, LAYOUT.position, -1).tolist() == [[0, 0], [1, 1], [2, 0], [3, -1]]
    assert LAYOUT.remaining.tolist() == [[3, 1], [2, 0], [1, 0], [0, 0]]
    assert LAYOUT.segment_ids().tolist() == [0, 1, 0, 1, 0, 2, 0, LAYOUT.size]


def test_steps_are_found_and_clipped_to_their_sequence():
    data = jnp.arange(8.0).reshape(4, 2)
    assert LAYOUT.at(data, 0).tolist() == [0, 1, 5, 0]
    assert LAYOUT.at(data, jnp.array([-1, 1, 7, 0])).tolist() == [0, 3, 5, 0]
    assert LAYOUT.first_samples().tolist() == [0, 4, 6, 7]


def test_one_value_per_sequence_is_spread_over_its_steps():
    spread = LAYOUT.spread(jnp.array([10.0, 20, 30, 40]))
    assert jnp.where(LAYOUT.mask, spread, 0).tolist() == [[10, 20], [10, 20], [10, 30], [10, 0]]


def test_subsequences_stay_in_their_cells():
    shorter = LAYOUT.shortened(1, jnp.maximum(LAYOUT.length - 1, 0))  # all but the first step of each
    assert shorter.mask.astype(int).tolist() == [[0, 0], [1, 1], [1, 0], [1, 0]]
    assert shorter.at(jnp.arange(8.0).reshape(4, 2), 0)[:2].tolist() == [2, 3]


@pytest.mark.parametrize("time", [3, 5])
def test_a_row_for_each_sequence_has_the_same_cells_as_rows_that_are_shared(time):
    lengths = jnp.array([3, 1, 2], jnp.int32)
    rows, starts = jnp.arange(3, dtype=jnp.int32), jnp.zeros(3, jnp.int32)
    simple, general = (Layout(rows, starts, lengths, time, 3, simple) for simple in (True, False))
    assert simple.mask.tolist() == general.mask.tolist() and simple.remaining.tolist() == general.remaining.tolist()
    values = jnp.array([[1.0, 2], [3, 4], [5, 6]])
    masked = [jnp.where(layout.mask[..., None], layout.spread(values), 0).tolist() for layout in (simple, general)]
    assert masked[0] == masked[1]
    assert simple.begin_together(reverse=False) and not simple.begin_together(reverse=True)
    assert not general.begin_together(reverse=False)


def test_a_batch_is_samples_and_padding_numbered_in_the_whole_minibatch():
    assert Batch(jnp.int32(2), 4).mask.tolist() == [True, True, False, False]
    assert Batch(jnp.int32(2), 3).numbers().tolist() == [0, 1, 2]
    assert Batch(jnp.int32(2), 3, first=jnp.int32(5)).numbers().tolist() == [5, 6, 7]
