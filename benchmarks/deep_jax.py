"""The deep networks of `deep.py` in plain JAX: a tree of parameters, and one jitted step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.deep import BATCH, HEADS, LENGTH, NETWORKS, WIDTH, samples

Parameters = list[Any]


class JAX:
    """Layers in JAX. Parameters and running statistics are lists in the order of use; without lists they are made."""

    def __init__(self, parameters: Parameters | None = None, statistics: Parameters | None = None) -> None:
        self.is_new = parameters is None
        self.parameters, self.statistics = iter(parameters or ()), iter(statistics or ())
        self.used, self.after = Parameters(), Parameters()
        self.random = np.random.default_rng(1)

    def parameter(self, *shape: int, fill: float | None = None) -> Array:
        if self.is_new:
            scale = (2 / np.prod(shape[:-1])) ** 0.5
            values = self.random.normal(0, scale, shape) if fill is None else np.full(shape, fill)
            self.used.append(values.astype(np.float32))
            return self.used[-1]
        return next(self.parameters)

    def convolution(self, x: Array, size: int, filters: int, stride: int = 1) -> Array:
        weights = self.parameter(size, size, x.shape[-1], filters)
        names = "NHWC", "HWIO", "NHWC"
        return lax.conv_general_dilated(x, weights, (stride, stride), "SAME", dimension_numbers=names)

    def normalization(self, x: Array) -> Array:
        scale, bias = self.parameter(x.shape[-1], fill=1), self.parameter(x.shape[-1], fill=0)
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        before = (jnp.zeros_like(mean), jnp.ones_like(mean)) if self.is_new else next(self.statistics)
        self.after.append(tuple(0.99 * b + 0.01 * now for b, now in zip(before, (mean, variance), strict=True)))
        return (x - mean) * (lax.rsqrt(variance + 1e-5) * scale) + bias

    def relu(self, x: Array) -> Array:
        return jax.nn.relu(x)

    def pooling(self, x: Array, kind: str, size: int, stride: int) -> Array:
        window, strides = (1, size, size, 1), (1, stride, stride, 1)
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")
        return lax.reduce_window(x, 0.0, lax.add, window, strides, "SAME") / size**2

    def joined(self, *x: Array) -> Array:
        return jnp.concatenate(x, -1)

    def mean(self, x: Array) -> Array:
        return x.mean(tuple(range(1, x.ndim - 1)))

    def dense(self, x: Array, size: int) -> Array:
        return x @ self.parameter(x.shape[-1], size) + self.parameter(size, fill=0)

    def layer_normalization(self, x: Array) -> Array:
        scale, bias = self.parameter(x.shape[-1], fill=1), self.parameter(x.shape[-1], fill=0)
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5) * scale + bias

    def attention(self, x: Array) -> Array:
        shape = BATCH, LENGTH, HEADS, WIDTH // HEADS
        query, key, value = (self.dense(x, WIDTH).reshape(shape) for _ in range(3))
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) * shape[-1] ** -0.5)
        return self.dense(jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(BATCH, LENGTH, WIDTH), WIDTH)


def images_last(data: np.ndarray) -> np.ndarray:
    """Images with channels last; words as they are."""
    return np.moveaxis(data, 1, -1) if data.ndim == 4 else data


def trained(network: str) -> Callable[[], float]:
    """A step of training, which returns the loss."""
    data, labels = samples(network)
    data = images_last(data)
    build = NETWORKS[network][1]
    new = JAX()
    with jax.disable_jit():
        shapes = jax.eval_shape(lambda: (build(new, jnp.asarray(data)), new.after)[1])
    parameters = [jnp.asarray(p) for p in new.used]
    statistics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def loss_of(parameters: Parameters, statistics: Parameters, x: Array, y: Array) -> tuple[Array, Parameters]:
        side = JAX(parameters, statistics)
        scores = jax.nn.log_softmax(build(side, x))
        return -scores[jnp.arange(BATCH), y].mean(), side.after

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(parameters: Parameters, momenta: Parameters, statistics: Parameters, x: Array, y: Array) -> Any:
        (loss, after), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, statistics, x, y)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
        return jax.tree.map(lambda p, m: p - 0.01 * m, parameters, momenta), momenta, after, loss

    state = [parameters, [jnp.zeros_like(p) for p in parameters], statistics]

    def step() -> float:
        *state[:], loss = update(*state, data, labels)
        return float(loss)

    return step
