"""pytest plugin: some of CNTK's tests draw numbers for their names, which have to be the same in all pytest-xdist workers."""

import numpy

numpy.random.seed(0)
