"""Small graphs that are evaluated once take no memory that stays."""

import sys

from benchmarks.small_evals import measure


def test_memory_does_not_grow_with_the_number_of_graphs(tmp_path):
    """The first programs, and what is loaded at first use, are not counted; it was 1.1 MB for each graph."""
    assert measure(sys.executable, tmp_path, 300, 100)["growth"] < 150
