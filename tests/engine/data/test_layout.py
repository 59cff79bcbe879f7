"""The layout of a grid: which sequence and step each cell holds, and where each step is."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.data.test_packing import grid_of, lengths_lists


@given(lengths_lists, st.booleans())
@settings(max_examples=40)
def test_layout_inside_the_program_agrees_with_the_grid(lengths, has_loop):
    lengths = np.array(lengths, np.int32)
    grid = grid_of(lengths, has_loop)
    layout = grid.layout
    cells = layout.seq, layout.position, layout.mask, layout.remaining
    seq, position, mask, remaining = map(np.asarray, cells)
    assert mask.sum() == lengths.sum()
    for i, (row, start, n) in enumerate(zip(grid.row, grid.start, lengths, strict=False)):
        cells = slice(start, start + n), row
        assert (seq[cells] == i).all() and mask[cells].all()
        np.testing.assert_array_equal(position[cells], np.arange(n))
        np.testing.assert_array_equal(remaining[cells], np.arange(n)[::-1])
