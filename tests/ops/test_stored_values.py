"""Values that XLA is made to store (`materialized`): gradients of operations on them, once and twice.

Against the same in a program that stores none, which jax compiles with its own options.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.interop import leaf_names, to_jax

SHAPE = (2, 6, 6)


def convolution(filters=2):
    return C.layers.Convolution2D((3, 3), filters, pad=True)


# Each maps an image to one of as many channels. What precedes keeps its result for its own gradient, too.
BEFORE = {"exp": C.exp, "normalized": lambda x: C.layers.BatchNormalization(map_rank=1)(C.tanh(x))}
AFTER = {
    "convolution": lambda x: convolution()(x),
    "convolution of a transpose": lambda x: convolution()(C.swapaxes(x, 1, 2)) * x,
    "two readers": lambda x: convolution()(x) + convolution()(C.slice(x, 2, 0, 6) * 2) * x,
    "maximum": lambda x: C.reduce_max(x, 2) * x,
    "maximum of a transpose": lambda x: C.reduce_max(C.swapaxes(x, 1, 2), 2) * x,
    "minimum": lambda x: C.reduce_min(x, [1, 2]) + x * x,
    "pooling": lambda x: convolution()(C.layers.MaxPooling((3, 3), pad=True)(x)),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_gradients_of_stored_values(before, after):
    data = np.random.default_rng(1).standard_normal((3, *SHAPE))
    with C.default_options(dtype=np.float64):
        x = C.input_variable(SHAPE, dtype=np.float64)
        y = AFTER[after](BEFORE[before](convolution()(x)))
        slope = C.gradient(C.reduce_sum(C.square(y)), x)
        loss = C.reduce_sum(C.square(slope)) + C.reduce_sum(y)
    with jax.enable_x64(True):
        f, parameters = to_jax(C.combine([slope, loss]))
        expected = f(parameters, data, training=True)
        gradients = jax.grad(lambda p: jnp.sum(f(p, data, training=True)[1]))(parameters)
    found, values = loss.grad({x: data}, wrt=list(loss.parameters), outputs=[slope, loss])
    assert np.allclose(values[slope], expected[0], rtol=1e-8, atol=1e-8)
    assert np.allclose(values[loss], expected[1], rtol=1e-8)
    for name, parameter in leaf_names(loss.parameters).items():
        assert np.allclose(found[parameter], gradients[name], rtol=1e-8, atol=1e-8), name
