"""The networks in plain JAX, as an experienced user writes them: one jitted step with donated state, channels-last
convolutions, `lax.reduce_window` for pooling, `lax.scan` for recurrence with the input's product outside of it, padded
sequences. For NETWORKS see cntk_networks.py. Names: B batch, T time, W weights, b bias, h and c as in the equations of
the LSTM.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import data
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Run = Callable[[int], int]
Tree = Any


def runner(loss_of: Callable[..., tuple[Array, Tree]], parameters: Tree, state: Tree, minibatches: Iterator) -> Run:
    """Momentum SGD on ``loss_of(parameters, state, *arguments) -> (loss, new state)``; state is not learned."""

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(parameters: Tree, momenta: Tree, state: Tree, arguments: tuple) -> tuple[Tree, Tree, Tree, Array]:
        (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, state, *arguments)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
        parameters = jax.tree.map(lambda p, m: p - 0.01 * m, parameters, momenta)
        return parameters, momenta, state, loss

    carried = [parameters, jax.tree.map(jnp.zeros_like, parameters), state]

    def run(count: int) -> int:
        samples = 0
        for arguments, size in itertools.islice(minibatches, count):
            *carried[:], loss = step(*carried, arguments)
            samples += size
        jax.block_until_ready(carried)
        assert math.isfinite(loss)
        return samples

    return run


random = np.random.default_rng(1)


def glorot(*shape: int) -> Array:
    """Uniform weights whose last two axes are inputs and outputs, and whose other axes are a filter's window."""
    window = math.prod(shape[:-2])
    limit = math.sqrt(6 / (window * (shape[-2] + shape[-1])))
    return jnp.asarray(random.uniform(-limit, limit, shape), jnp.float32)


def linear(inputs: int, outputs: int) -> dict[str, Array]:
    """The parameters of a linear layer."""
    return {"W": glorot(inputs, outputs), "b": jnp.zeros(outputs)}


def cross_entropy(scores: Array, labels: Array) -> Array:
    """[*, classes], [*] -> [*]"""
    return jax.nn.logsumexp(scores, -1) - jnp.take_along_axis(scores, labels[..., None], -1)[..., 0]


def batches_of(minibatches: list, layout: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Iterator:
    """Endless minibatches with their numbers of samples."""
    return itertools.cycle([((layout(x), y), y.size) for x, y in minibatches])


def channels_last(x: np.ndarray) -> np.ndarray:
    """Images [B, C, H, W] as [B, H, W, C]."""
    return np.ascontiguousarray(np.moveaxis(x, 1, 3))


def convolution(x: Array, W: Array, stride: int = 1) -> Array:
    """A convolution with padding, channels last."""
    return lax.conv_general_dilated(x, W, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def perceptron(sizes: list[int], minibatches: list) -> Run:
    """A classifier with sigmoid layers of these sizes."""

    def loss_of(layers: list, state: Tree, x: Array, y: Array) -> tuple[Array, Tree]:
        for layer in layers[:-1]:
            x = jax.nn.sigmoid(x @ layer["W"] + layer["b"])
        return cross_entropy(x @ layers[-1]["W"] + layers[-1]["b"], y).mean(), state

    layers = [linear(i, o) for i, o in itertools.pairwise([*sizes, data.CLASSES])]
    return runner(loss_of, layers, (), batches_of(minibatches))


def fcn5() -> Run:
    """Four sigmoid layers and an output layer."""
    return perceptron([data.PIXELS, 4096, 2048, 1024], data.vectors())


def tiny() -> Run:
    """Five layers and ten parameters with next to no arithmetic."""
    return perceptron([data.TINY_WIDTH] * 5, data.vectors(data.TINY_WIDTH, data.TINY_BATCH))


def alexnet() -> Run:
    """Three stages of convolution and pooling."""

    def loss_of(layers: list, state: Tree, x: Array, y: Array) -> tuple[Array, Tree]:
        for layer in layers[:-1]:
            x = jax.nn.relu(convolution(x, layer["W"]) + layer["b"])
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")
        return cross_entropy(x.reshape(len(x), -1) @ layers[-1]["W"] + layers[-1]["b"], y).mean(), state

    layers = [
        {"W": glorot(5, 5, i, o), "b": jnp.zeros(o)} for i, o in itertools.pairwise([3, 32, 32, 64])
    ] + [linear(64 * 3 * 3, data.CLASSES)]
    return runner(loss_of, layers, (), batches_of(data.images(data.ALEXNET_BATCH), channels_last))


def resnet56() -> Run:
    """Residual blocks with batch normalization."""
    widths = [16] * 10 + [32] * 9 + [64] * 9  # of the first convolution and the 27 blocks

    def normalized(x: Array, layer: dict, running: dict, stride: int) -> tuple[Array, dict]:
        x = convolution(x, layer["W"], stride)
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        running = jax.tree.map(lambda r, now: 0.99 * r + 0.01 * now, running, {"mean": mean, "variance": variance})
        return (x - mean) * (lax.rsqrt(variance + 1e-5) * layer["scale"]) + layer["b"], running

    def loss_of(parameters: dict, state: dict, x: Array, y: Array) -> tuple[Array, dict]:
        after = {}

        def apply(name: str, x: Array, stride: int = 1) -> Array:
            x, after[name] = normalized(x, parameters[name], state[name], stride)
            return x

        x = jax.nn.relu(apply("first", x))
        for block in range(1, 28):
            stride = 2 if widths[block] > widths[block - 1] else 1
            inner = apply(f"{block}b", jax.nn.relu(apply(f"{block}a", x, stride)))
            x = jax.nn.relu(inner + (apply(f"{block}shortcut", x, stride) if stride > 1 else x))
        return cross_entropy(x.mean((1, 2)) @ parameters["last"]["W"] + parameters["last"]["b"], y).mean(), after

    shapes = {"first": (3, 3, 3, 16)}
    for block, (i, o) in enumerate(itertools.pairwise(widths), 1):
        shapes |= {f"{block}a": (3, 3, i, o), f"{block}b": (3, 3, o, o)}
        shapes |= {f"{block}shortcut": (1, 1, i, o)} if o > i else {}
    parameters = {n: {"W": glorot(*s), "scale": jnp.ones(s[-1]), "b": jnp.zeros(s[-1])} for n, s in shapes.items()}
    state = {name: {"mean": jnp.zeros(s[-1]), "variance": jnp.ones(s[-1])} for name, s in shapes.items()}
    parameters["last"] = linear(64, data.CLASSES)
    return runner(loss_of, parameters, state, batches_of(data.images(data.RESNET_BATCH), channels_last))


def lstm_parameters(inputs: int, hidden: int) -> dict[str, Array]:
    """The parameters of an LSTM layer."""
    return linear(inputs, 4 * hidden) | {"H": glorot(hidden, 4 * hidden)}


def lstm_layer(p: dict[str, Array], x: Array) -> Array:
    """[T, B, inputs] -> [T, B, hidden]"""

    def step(carry: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, o, g = jnp.split(now + h @ p["H"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], len(p["H"])))
    return lax.scan(step, (zeros, zeros), x @ p["W"] + p["b"])[1]


def tagger_loss(parameters: dict, state: Tree, words: Array, labels: Array, mask: Array) -> tuple[Array, Tree]:
    """Embedding, LSTM layers and a linear one; words, labels and mask are [B, T]."""
    x = parameters["embedding"][words.T]
    for layer in parameters["memory"]:
        x = lstm_layer(layer, x)
    losses = cross_entropy(x @ parameters["scores"]["W"] + parameters["scores"]["b"], labels.T)
    return (losses * mask.T).sum() / mask.sum(), state


def tagger(words: int, embedding: int, hidden: int, layers: int, labels: int) -> dict:
    """The parameters of an embedding, LSTM layers and a linear layer."""
    sizes = itertools.pairwise([embedding] + layers * [hidden])
    memory = [lstm_parameters(i, o) for i, o in sizes]
    return {"embedding": glorot(words, embedding), "memory": memory, "scores": linear(hidden, labels)}


def lstm(batch: int) -> Run:
    """A language model of two LSTM layers."""
    ones = np.ones((batch, data.STEPS), np.float32)
    batches = itertools.cycle([((x, y, ones), x.size) for x, y in data.texts(batch)])
    return runner(tagger_loss, tagger(data.VOCABULARY, 256, 256, 2, data.VOCABULARY), (), batches)


def atis(folder: str) -> Run:
    """Slot tagging."""

    def minibatches() -> Iterator:
        """One query a row, rows and time rounded up so that few shapes occur."""
        items = data.queries(os.path.join(folder, "atis.train.ctf"))
        for chosen in data.shuffled_minibatches(items, data.ATIS_MINIBATCH):
            rows = -len(chosen) // 16 * -16
            steps = -max(len(words) for words, _ in chosen) // 8 * -8
            words, labels = np.zeros((2, rows, steps), np.int32)
            mask = np.zeros((rows, steps), np.float32)
            for row, query in enumerate(chosen):
                length = len(query[0])
                words[row, :length], labels[row, :length], mask[row, :length] = *query, 1
            yield (words, labels, mask), int(mask.sum())

    return runner(tagger_loss, tagger(data.ATIS_WORDS, 150, 300, 1, data.ATIS_LABELS), (), minibatches())


NETWORKS = {
    "fcn5": fcn5,
    "alexnet": alexnet,
    "resnet56": resnet56,
    "lstm64": functools.partial(lstm, 64),
    "lstm256": functools.partial(lstm, 256),
    "atis": atis,
    "tiny": tiny,
}
