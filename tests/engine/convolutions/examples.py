"""Convolutions of random data, also in the step of a recurrence, for whatever computes convolutions."""

import numpy as np

import cntkjax as C


def convolved(shape, filters, options, precision, scale=1.0):
    """The convolution, its operand, its filters and data."""
    rng = np.random.default_rng(3)
    x = C.input_variable(shape, dtype=precision, needs_gradient=True)
    w = C.parameter(init=(scale * rng.normal(size=filters)).astype(precision))
    data = rng.normal(size=(3, *shape)).astype(precision)
    options = {"auto_padding": [False] + [True] * (len(shape) - 1), **options}
    return C.convolution(w, x, **options), x, w, data


def gradients_of_filters():
    """Those in double and in single precision."""
    gradients = []
    for precision in (np.float64, np.float32):
        rng = np.random.default_rng(4)
        x = C.sequence.input_variable((2, 6, 5), dtype=precision)
        w = C.parameter(init=rng.normal(size=(2, 2, 3, 3)).astype(precision) / 3)
        padding = [False, True, True]
        h = C.layers.Recurrence(lambda h, x, w=w, p=padding: C.tanh(C.convolution(w, h, auto_padding=p) + x))(x)
        data = [rng.normal(size=(n, 2, 6, 5)).astype(precision) for n in (4, 2)]
        gradients.append(C.reduce_sum(C.square(h)).grad({x: data}, wrt=[w]))
    return gradients
