"""A parameter as a learner sees it, without a graph."""

import numpy as np


class Weights:
    is_parameter = True

    def __init__(self, value, dtype=np.float32, name="w"):
        self.value = np.array(value, dtype)
        self.shape, self.dtype, self.name, self.uid = self.value.shape, self.value.dtype.type, name, name
