"""The leaves of a small graph."""

import cntkjax as C


def parts():
    x = C.input_variable(3, name="x")
    W, b, W2 = (C.parameter(s, name=n) for s, n in (((3, 2), "W"), (2, "b"), ((2, 2), "W2")))
    return x, W, b, W2
