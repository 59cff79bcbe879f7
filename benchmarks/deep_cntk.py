"""The deep networks of `deep.py` as CNTK scripts have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cntk as C
from benchmarks.deep import CLASSES, HEADS, LENGTH, NETWORKS, WIDTH, samples

L = C.layers
Array = Any


class CNTK:
    """Layers of CNTK."""

    def convolution(self, x: Array, size: int, filters: int, stride: int = 1) -> Array:
        return L.Convolution2D(size, filters, strides=stride, pad=True, bias=False)(x)

    def normalization(self, x: Array) -> Array:
        return L.BatchNormalization(map_rank=1)(x)

    def relu(self, x: Array) -> Array:
        return C.relu(x)

    def pooling(self, x: Array, kind: str, size: int, stride: int) -> Array:
        return (L.MaxPooling if kind == "max" else L.AveragePooling)((size, size), strides=stride, pad=True)(x)

    def joined(self, *x: Array) -> Array:
        return C.splice(*x, axis=0)

    def mean(self, x: Array) -> Array:
        return C.reduce_mean(x, axis=0) if len(x.shape) == 2 else L.GlobalAveragePooling()(x)

    def dense(self, x: Array, size: int) -> Array:
        return L.Dense(size, input_rank=1 if x.shape[0] == LENGTH else None)(x)

    def layer_normalization(self, x: Array) -> Array:
        mean = C.reduce_mean(x, axis=-1)
        scale, bias = C.parameter(x.shape[-1:], init=1), C.parameter(x.shape[-1:])
        return (x - mean) / C.sqrt(C.reduce_mean(C.square(x - mean), axis=-1) + 1e-5) * scale + bias

    def attention(self, x: Array) -> Array:
        queries, keys, values = (L.Dense(WIDTH, input_rank=1)(x) for _ in range(3))
        attended, width = [], WIDTH // HEADS
        for begin in range(0, WIDTH, width):
            query, key, value = (C.slice(y, 1, begin, begin + width) for y in (queries, keys, values))
            weights = C.softmax(C.times(query, C.transpose(key, (1, 0))) * width**-0.5, axis=1)
            attended.append(C.times(weights, value))
        return L.Dense(WIDTH, input_rank=1)(C.splice(*attended, axis=1))


def trained(network: str) -> Callable[[], float]:
    """A step of training, which returns the loss."""
    data, labels = samples(network)
    x, y = C.input_variable(data.shape[1:]), C.input_variable(CLASSES)
    scores = NETWORKS[network][1](CNTK(), x)
    loss = C.cross_entropy_with_softmax(scores, y)
    schedule = C.learning_parameter_schedule(0.01)
    learner = C.momentum_sgd(scores.parameters, schedule, C.momentum_schedule(0.9), unit_gain=False)
    trainer = C.Trainer(scores, (loss, None), [learner])
    feed = {x: data, y: np.eye(CLASSES, dtype=np.float32)[labels]}
    for parameter in scores.parameters:
        parameter.value  # noqa: B018 - drawn now

    def step() -> float:
        trainer.train_minibatch(feed)
        return trainer.previous_minibatch_loss_average

    return step
