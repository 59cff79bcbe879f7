"""pytest plugin: some of CNTK's tests draw numbers for their names, which all workers of pytest-xdist have to agree on."""

import numpy

numpy.random.seed(0)
