"""gradientCheck: gradients against finite differences."""

import numpy as np
import pytest

import cntkjax as C
from tests.sgd.problems import RATE, X, Y, regression, trained


def test_gradientCheck_compares_gradients_in_sigFigs_digits():
    data = (X.astype(np.float64), Y.astype(np.float64))
    trained(regression(np.float64), data, **RATE, gradientCheck=True, sigFigs=6)

    class Wrong(C.ops.functions.UserFunction):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, argument

        def backward(self, state, root_gradients):
            return 1.01 * root_gradients

        def infer_outputs(self):
            return [C.output_variable((1,), np.float64, self.inputs[0].dynamic_axes)]

    x, y = C.input_variable(3, dtype=np.float64), C.input_variable(1, dtype=np.float64)
    z = C.user_function(Wrong([C.times(x, C.parameter((3, 1), init=1, dtype=np.float64)).output]))
    with pytest.raises(RuntimeError, match=r"3 of the gradients differ in the first 6 digits"):
        trained(C.squared_error(z, y), data, **RATE, gradientCheck=True)
    trained(C.squared_error(z, y), data, **RATE, gradientCheck=True, sigFigs=1)
