"""Fixtures that several test modules use."""

import hypothesis
import pytest

from cntkjax.engine.data import packing
from cntkjax.engine.run.program_cache import programs
from cntkjax.graph.seed import reset_random_seed

# A slow machine is no failure: examples have no time limit.
hypothesis.settings.register_profile("cntkjax", deadline=None)
hypothesis.settings.load_profile("cntkjax")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """A test draws the same numbers, whatever ran before it."""
    reset_random_seed()


@pytest.fixture(params=["one sequence a row", "several sequences a row"])
def grid(request, monkeypatch):
    """Run a test with both kinds of grid, whatever the packer would choose."""
    simple = request.param == "one sequence a row"

    def choose(self, lengths, size):
        if simple:
            return self._simple(lengths, size, int(lengths.max()) + 1)
        time = int(lengths.max()) + 2
        grids = (self._fill(lengths, size, (time, rows, False)) for rows in range(1, len(lengths) + 1))
        return next(grid for grid in grids if grid is not None)

    monkeypatch.setattr(packing.Packer, "grid", choose)
    programs.clear()
    yield
    programs.clear()
