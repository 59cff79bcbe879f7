"""pytest plugin: some of CNTK's tests draw numbers for their names; all workers of pytest-xdist need the same ones."""

import numpy

numpy.random.seed(0)
