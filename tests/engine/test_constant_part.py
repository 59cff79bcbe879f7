"""Splitting a computation into what follows from fixed inputs, and the rest."""

import jax
import jax.numpy as jnp
import numpy as np

from cntkjax.engine.lower.constant_part import split_constants

W, B, X = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32), np.full((4, 3), 2, np.float32)


def test_the_parts_compute_the_whole():
    def f(fixed, x):
        w, b = fixed
        return {"y": x @ jnp.tanh(w).T, "b": b * 2, "x": x, "spread": jnp.broadcast_to(b, x.shape) + x, "w": w}

    split = split_constants(f, (W, B), X)
    constants = [*split.computed((W, B)), *((W, B)[i] for i in split.kept)]
    parts, whole = split.rest(constants, X), f((W, B), X)
    assert parts.keys() == whole.keys()
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-6)


def test_what_is_spread_is_no_constant():
    split = split_constants(lambda b, x: x + jnp.broadcast_to(b, x.shape), B, X)
    assert split.computed(B) == [] and split.kept == [0]
    split = split_constants(lambda b, x: x * jnp.exp(jnp.broadcast_to(b, x.shape)), B, X)
    assert [a.shape for a in split.computed(B)] == [X.shape]


def test_keys_tell_constant_parts_apart():
    def split(number, rows):
        return split_constants(lambda w, x: x @ jax.jit(lambda w: w * number)(w).T, W, X[:rows])

    assert split(2.0, 4).key == split(2.0, 1).key != split(3.0, 4).key
    assert split(np.float32([1, 2, 3]), 4).key != split(np.float32([1, 2, 4]), 4).key
