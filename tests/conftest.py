"""What several test modules need."""

import pytest

from cntkjax.engine import packing, program


@pytest.fixture(params=["one sequence a row", "several sequences a row"])
def grid(request, monkeypatch):
    """Run a test with both kinds of grid: the packer's choice is overruled."""
    simple = request.param == "one sequence a row"

    def choose(self, lengths, size):
        if simple:
            return self._simple(lengths, size, int(lengths.max()) + 1)
        return self._packed(lengths, size, 0)

    monkeypatch.setattr(packing.Packer, "grid", choose)
    program._PROGRAMS.clear()
    yield
    program._PROGRAMS.clear()
