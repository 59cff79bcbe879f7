"""Batches are padded with empty sequences where that saves a compilation. These must not contribute to gradients."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence as S

FUNCTIONS = {
    "maximum": S.reduce_max,
    "less the maximum": lambda x: x - S.broadcast_as(S.reduce_max(x), x),
    "minimum": lambda x: -S.reduce_max(-x),
    "softmax": lambda x: S.softmax(x) * x,
    "its logarithm": lambda x: C.log(S.softmax(x)),
    "softmax beside unpacked steps": lambda x: S.softmax(x) * x + S.broadcast_as(C.reduce_max(S.unpack(x, 0, True)), x),
    "first and last": lambda x: S.first(x) / S.last(x),
    "length": lambda x: S.reduce_sum(x) / S.reduce_sum(C.ones_like(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_do_not_depend_on_the_batch_before(name):
    x = S.input_variable(2)
    inner, outer = C.parameter((2, 2), init=np.eye(2, dtype=np.float32)), C.parameter(2, init=1.0)
    output = FUNCTIONS[name](C.times(x, inner)) * outer
    loss = C.square(C.reduce_sum(output) if len(output.dynamic_axes) == 1 else S.reduce_sum(C.reduce_sum(output)))
    texts = list(np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32))

    def gradients(batch):
        return loss.grad({x: batch}, wrt=[inner, outer])

    separate = [gradients([text]) for text in texts]
    gradients(texts[:4])
    joint = gradients(texts)
    for p in (inner, outer):
        np.testing.assert_allclose(joint[p], sum(g[p] for g in separate), rtol=1e-4, atol=1e-4)
