"""Networks of all kinds that a model file may hold, and their records."""

import numpy as np

import cntkjax as C
from cntkjax.formats.dictionary import decode

X = np.float32([[1, -2, 3], [0.5, 0, -1]])
S = [np.float32([[1, 0, 2], [0, 1, 0], [3, 1, 1]]), np.float32([[2, 2, 2]])]


def weights(*shape, **kw):
    return C.parameter(shape, init=np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32), **kw)


def dense():
    x = C.input_variable(3, name="x")
    return C.tanh(C.times(x, weights(3, 2, name="W")) + weights(2, name="b"), name="out"), [X]


def recurrence():
    s, h = C.sequence.input_variable(3, name="s"), C.placeholder()
    new = C.tanh(C.times(s, weights(3, 2)) + C.times(C.sequence.past_value(h), weights(2, 2)))
    return new.replace_placeholder(new), [S]


def blocks():
    @C.BlockFunction("Inner", "inner")
    def inner(p):
        return C.times(p, weights(3, 3, name="V")) + 1

    @C.BlockFunction("Outer", "outer")
    def outer(a, b):
        return C.minus(inner(a), C.exp(inner(b)))

    x, y = C.input_variable(3, name="x"), C.input_variable(3, name="y")
    return outer(y, x), [X, X + 1]


def record_of(function, tmp_path):
    function.save(tmp_path / "m")
    return decode((tmp_path / "m").read_bytes())
