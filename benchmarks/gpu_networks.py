"""Networks for which GPUs and CPUs are lowered differently, besides those of cntk_networks.py."""
import functools

import cntk_networks
import data
import numpy as np

import cntk as C


def images(network, shape, count=32):
    """Trains a network of random images."""
    random = np.random.default_rng(1)
    x, y = C.input_variable(shape), C.input_variable(data.CLASSES)
    labels = np.eye(data.CLASSES, dtype=np.float32)[random.integers(data.CLASSES, size=count)]
    feed = {x: random.random((count, *shape), np.float32), y: labels}
    return cntk_networks.runner(network(x), y, iter([(feed, count)]))


def convolutions(groups):
    """Two layers of 3x3 convolutions in groups, of 128 channels."""

    def layer(x):
        w = C.parameter((128, 128 // groups, 3, 3), init=C.glorot_uniform())
        return C.relu(C.convolution(w, x, auto_padding=[False, True, True], groups=groups))

    return images(lambda x: C.layers.Dense(data.CLASSES)(layer(layer(x))), (128, 28, 28))


def rnnstack():
    """Two LSTM layers of 256 cells as one operation, 64 sequences of 32 steps."""
    random = np.random.default_rng(1)
    x, y = C.sequence.input_variable(256), C.input_variable(data.CLASSES)
    weights = C.parameter((C.InferredDimension, 256), init=C.glorot_uniform())
    top = C.sequence.last(C.optimized_rnnstack(x, weights, 256, 2, recurrent_op='lstm'))
    labels = np.eye(data.CLASSES, dtype=np.float32)[random.integers(data.CLASSES, size=64)]
    feed = {x: random.random((64, 32, 256), np.float32), y: labels}
    return cntk_networks.runner(C.layers.Dense(data.CLASSES)(top), y, iter([(feed, 64)]))


NETWORKS = {
    'grouped': functools.partial(convolutions, 32), 'depthwise': functools.partial(convolutions, 128),
    'rnnstack': rnnstack,
}
