"""pytest plugin: CNTK's tests draw the same random numbers in each run and order: their number is no matter of luck."""

import numpy
import pytest

from cntkjax.graph.seed import reset_random_seed

numpy.random.seed(0)  # some tests draw numbers for their names, which all workers of pytest-xdist have to agree on


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin each test as in a new process, whatever ran before it in this worker."""
    numpy.random.seed(0)
    reset_random_seed()
