"""The deep networks of `deep.py` in flax's nnx: modules, an optimizer, and one jitted step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

from benchmarks.deep import HEADS, NETWORKS, WIDTH, Side, samples
from benchmarks.deep_jax import images_last


class Model(nnx.Module):
    """A network whose layers are made when it is called for the first time, in the order of their use."""

    def __init__(self, network: Callable[[Side, Any], Any]) -> None:
        self.network, self.layers, self.rngs = network, nnx.List([]), nnx.Rngs(1)
        self.is_new, self.place = True, 0

    def __call__(self, x: Array) -> Array:
        self.place = 0
        scores = self.network(self, x)
        self.is_new = False
        return scores

    def layer(self, make: Callable[..., Any], *sizes: int, **options: Any) -> Any:
        if self.is_new:
            self.layers.append(make(*sizes, rngs=self.rngs, **options))
        self.place += 1
        return self.layers[self.place - 1]

    def convolution(self, x: Array, size: int, filters: int, stride: int = 1) -> Array:
        return self.layer(nnx.Conv, x.shape[-1], filters, kernel_size=(size, size), strides=stride, use_bias=False)(x)

    def normalization(self, x: Array) -> Array:
        return self.layer(nnx.BatchNorm, x.shape[-1])(x, use_running_average=self.is_new)

    def relu(self, x: Array) -> Array:
        return nnx.relu(x)

    def pooling(self, x: Array, kind: str, size: int, stride: int) -> Array:
        pool = nnx.max_pool if kind == "max" else nnx.avg_pool
        return pool(x, (size, size), strides=(stride, stride), padding="SAME")

    def joined(self, *x: Array) -> Array:
        return jnp.concatenate(x, -1)

    def mean(self, x: Array) -> Array:
        return x.mean(tuple(range(1, x.ndim - 1)))

    def dense(self, x: Array, size: int) -> Array:
        return self.layer(nnx.Linear, x.shape[-1], size)(x)

    def layer_normalization(self, x: Array) -> Array:
        return self.layer(nnx.LayerNorm, x.shape[-1])(x)

    def attention(self, x: Array) -> Array:
        return self.layer(nnx.MultiHeadAttention, HEADS, WIDTH, decode=False)(x)


def trained(network: str) -> Callable[[], float]:
    """A step of training, which returns the loss."""
    data, labels = samples(network)
    data = images_last(data)

    @nnx.jit
    def new() -> Model:
        model = Model(NETWORKS[network][1])
        model(jnp.asarray(data))
        return model

    model = new()
    optimizer = nnx.Optimizer(model, optax.sgd(0.01, momentum=0.9), wrt=nnx.Param)

    @nnx.jit
    def update(model: Model, optimizer: nnx.Optimizer, x: Array, y: Array) -> Array:
        def loss_of(model: Model) -> Array:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return loss

    return lambda: float(update(model, optimizer, data, labels))
