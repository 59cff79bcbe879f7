"""Parameters for tests of learners alone."""

import numpy as np

import cntkjax as C


def Weights(value, dtype=np.float32, name="w"):
    return C.parameter(init=np.array(value, dtype), name=name)
