"""pytest plugin: CNTK's tests are the same in each run, whatever their order and the number of workers.

They draw the same random numbers, and no worker finds files that another one made: a test file makes a folder in the
current directory while it is imported (two workers that do so at once collect different tests, and none runs).
"""

import os
import tempfile

import numpy
import pytest

from cntkjax.graph.seed import reset_random_seed

if "PYTEST_XDIST_WORKER" in os.environ:
    os.chdir(tempfile.mkdtemp(dir="."))  # below the folder that the suite's runner removes
numpy.random.seed(0)  # some tests draw numbers for their names, which all workers of pytest-xdist have to agree on


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin each test as in a new process, whatever ran before it in this worker."""
    numpy.random.seed(0)
    reset_random_seed()
