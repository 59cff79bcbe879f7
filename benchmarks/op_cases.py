"""The operations that are measured: each in this package, as a user of JAX writes it, and in PyTorch.

An operation needs no row here; those whose speed matters have one. Arrays have the layout of this package: images are
[batch, channels, height, width]. The function of each side takes the arrays and returns one; the first `wrt` arrays
are differentiated. Sequences are in sequence_cases.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import cntkjax as C

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # then its column stays empty
    torch = F = None

Generator = Callable[[np.random.Generator], np.ndarray]  # of an operand


@dataclass
class Case:
    """One operation. `ours` takes input variables and returns a Function.

    With `sequences` arrays are [time, batch, size]; with `lengths` (from, to) their lengths vary, and the other sides
    receive them as a last argument, int32 [batch].
    """

    name: str
    shapes: list[tuple[int, ...]]
    ours: Callable[..., Any]
    jax: Callable[..., Any]
    torch: Callable[..., Any] | None
    wrt: int = 1
    sequences: bool = False
    lengths: tuple[int, int] | None = None
    training: bool = False
    random: bool = False  # the results differ between sides
    static: tuple[int, ...] = ()  # indices of the arrays without a batch axis: weights
    generators: dict[int, Generator] = field(default_factory=dict)  # of operands that are not normally distributed

    def arrays(self) -> list[np.ndarray]:
        """The operands, float32."""
        rng = np.random.default_rng(0)
        return [
            (self.generators[i](rng) if i in self.generators else 0.3 * rng.standard_normal(shape)).astype(np.float32)
            for i, shape in enumerate(self.shapes)
        ]

    @property
    def steps(self) -> np.ndarray | None:
        """The lengths of the sequences; None: that of the arrays."""
        if self.lengths is None:
            return None
        return np.random.default_rng(1).integers(self.lengths[0], self.lengths[1] + 1, self.shapes[0][1], np.int32)

    def variables(self) -> list[C.Variable]:
        """The operands of this package's graph."""
        lead = 2 if self.sequences else 1
        make = C.sequence.input_variable if self.sequences else C.input_variable
        return [
            C.input_variable(shape, dynamic_axes=[]) if i in self.static else make(shape[lead:])
            for i, shape in enumerate(self.shapes)
        ]


def indices(high: int, *shape: int) -> Generator:
    """Integers below `high`."""
    return lambda rng: rng.integers(0, high, shape)


def probabilities(*shape: int) -> Generator:
    """Numbers between 0 and 1."""
    return lambda rng: rng.uniform(0.01, 0.99, shape)


def distributions(*shape: int) -> Generator:
    """Numbers that sum to 1 along the last axis."""
    return lambda rng: rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def one_hot(n: int, size: int) -> Generator:
    """One 1 in each vector."""
    return lambda rng: np.eye(size)[rng.integers(0, size, n)]


def regions(n: int, number: int, size: int) -> Generator:
    """Rectangles (x1, y1, x2, y2) in an image of this size, [n, number, 4]."""
    def make(rng: np.random.Generator) -> np.ndarray:
        corner = rng.integers(0, size // 2, (n, number, 2))
        return np.concatenate([corner, corner + rng.integers(7, size // 2, (n, number, 2))], -1)

    return make


# ---- as a user of JAX writes it: channels last, where XLA:CPU is fast
def channels_last(x: Array) -> Array:
    """[N, C, *] -> [N, *, C]."""
    return jnp.moveaxis(x, 1, -1)


def channels_first(x: Array) -> Array:
    """[N, *, C] -> [N, C, *]."""
    return jnp.moveaxis(x, -1, 1)


def convolution(x: Array, w: Array, stride: int = 1, pad: int = 1, **options: int) -> Array:
    """A convolution of any number of axes."""
    n = w.ndim - 2
    space = "HWD"[:n]
    numbers = (f"N{space}C", f"OI{space}", f"N{space}C")
    return channels_first(lax.conv_general_dilated(
        channels_last(x), w, (stride,) * n, [(pad, pad)] * n, dimension_numbers=numbers, **options
    ))


def reduce_window(x: Array, neutral: float, f: Callable[..., Array], size: int, stride: int) -> Array:
    """Pooling without padding."""
    shape, steps = (1, size, size, 1), (1, stride, stride, 1)
    return channels_first(lax.reduce_window(channels_last(x), neutral, f, shape, steps, "VALID"))


def batch_normalized(x: Array, scale: Array, bias: Array) -> Array:
    """Batch normalization with the statistics of the minibatch."""
    mean, var = jnp.mean(x, (0, 2, 3), keepdims=True), jnp.var(x, (0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale[:, None, None] + bias[:, None, None]


def layer_normalized(x: Array, scale: Array, bias: Array) -> Array:
    """Layer normalization along the last axis."""
    mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + bias


def cosine(x: Array, y: Array) -> Array:
    """The cosine of the angle between samples."""
    return jnp.sum(x * y, -1) / (jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1))


def unpool(y: Array, x: Array) -> Array:
    """The inverse of 2 x 2 max pooling of x."""
    n, c, h, w = x.shape
    cells = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(*y.shape, 4)
    values = jax.nn.one_hot(jnp.argmax(cells, -1), 4) * y[..., None]
    return values.reshape(n, c, h // 2, w // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(x.shape)


def torch_unpool(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The inverse of 2 x 2 max pooling of x."""
    return F.max_unpool2d(y, F.max_pool2d(x, 2, return_indices=True)[1], 2)


def region_maxima(x: Array, rois: Array, cells: int = 7) -> Array:
    """The maxima of cells x cells parts of regions of interest."""
    places, cell = jnp.arange(x.shape[-1]), jnp.arange(cells)[:, None]

    def inside(begin: Array, end: Array) -> Array:  # [cells, size]
        extent = jnp.maximum(end - begin + 1, 1)
        return (places >= begin + cell * extent // cells) & (places < begin - (-(cell + 1) * extent // cells))

    def maxima_of(x: Array, roi: Array) -> Array:
        columns, rows = inside(roi[0], roi[2]), inside(roi[1], roi[3])
        narrow = jnp.max(jnp.where(columns[:, None, None], x, -jnp.inf), -1)  # [cells, channels, height]
        maxima = jnp.max(jnp.where(rows[:, None, None], narrow, -jnp.inf), -1)
        return maxima.transpose(2, 0, 1)

    return jax.vmap(lambda x, rois: lax.map(lambda roi: maxima_of(x, roi), rois))(x, rois.astype(int))


def depth_to_space(x: Array) -> Array:
    """Blocks of 2 x 2 pixels from groups of channels."""
    n, c, h, w = x.shape
    return x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


def local_response_normalized(x: Array) -> Array:
    """Normalization over five neighboring channels."""
    squares = lax.reduce_window(x * x, 0.0, lax.add, (1, 5, 1, 1), (1, 1, 1, 1), "SAME")
    return x / (1 + 1e-4 * squares) ** 0.75


# ---- in this package
def layer_normalization(x: C.Variable, scale: C.Variable, bias: C.Variable) -> C.Function:
    """Composed of operations."""
    centre = x - C.reduce_mean(x, 0)
    return centre / C.sqrt(C.reduce_mean(C.square(centre), 0) + 1e-5) * scale + bias


def batch_normalization(x: C.Variable, scale: C.Variable, bias: C.Variable) -> C.Function:
    """With running statistics of its own."""
    statistics = [C.constant(v, (64,)) for v in (0, 1)]
    return C.batch_normalization(x, scale, bias, *statistics, True, running_count=C.constant(0))


IMAGES = (32, 64, 28, 28)
VECTORS = (256, 4096)
CASES = [
    Case("sigmoid(x) * tanh(y)", [(256, 4096)] * 2, lambda x, y: C.sigmoid(x) * C.tanh(y),
         lambda x, y: jax.nn.sigmoid(x) * jnp.tanh(y), lambda x, y: torch.sigmoid(x) * torch.tanh(y), 2),
    Case("element_select", [(256, 4096)] * 3, lambda c, x, y: C.element_select(C.greater(c, 0), x, y),
         lambda c, x, y: jnp.where(c > 0, x, y), lambda c, x, y: torch.where(c > 0, x, y), 3),
    Case("relu", [VECTORS], C.relu, jax.nn.relu, lambda x: torch.relu(x)),
    Case("elu", [VECTORS], C.elu, jax.nn.elu, lambda x: F.elu(x)),
    Case("softplus", [VECTORS], C.softplus, jax.nn.softplus, lambda x: F.softplus(x)),
    Case("tanh", [VECTORS], C.tanh, jnp.tanh, lambda x: torch.tanh(x)),
    Case("exp", [VECTORS], C.exp, jnp.exp, lambda x: torch.exp(x)),
    Case("log", [VECTORS], C.log, jnp.log, lambda x: torch.log(x), generators={0: probabilities(*VECTORS)}),
    Case("pow", [VECTORS] * 2, C.pow, jnp.power, lambda x, y: torch.pow(x, y), 2,
         generators={0: probabilities(*VECTORS)}),
    Case("element_divide", [VECTORS] * 2, C.element_divide, jnp.divide, lambda x, y: x / y, 2,
         generators={1: probabilities(*VECTORS)}),
    Case("log_add_exp", [VECTORS] * 2, C.log_add_exp, jnp.logaddexp, lambda x, y: torch.logaddexp(x, y), 2),
    Case("clip", [VECTORS], lambda x: C.clip(x, -0.3, 0.3), lambda x: jnp.clip(x, -0.3, 0.3),
         lambda x: torch.clamp(x, -0.3, 0.3)),
    Case("element_max", [VECTORS] * 2, C.element_max, jnp.maximum, lambda x, y: torch.maximum(x, y), 2),
    Case("plus of a bias", [(1024, 2048), (2048,)], C.plus, jnp.add, lambda x, b: x + b, 2, static=(1,)),
    Case("reduce_log_sum_exp", [(256, 4096)], lambda x: C.reduce_log_sum_exp(x, 0), lambda x: jax.nn.logsumexp(x, 1),
         lambda x: torch.logsumexp(x, 1)),
    Case("reduce_max", [(256, 4096)], lambda x: C.reduce_max(x, 0), lambda x: jnp.max(x, 1),
         lambda x: torch.amax(x, 1)),
    Case("reduce_sum over two axes", [IMAGES], lambda x: C.reduce_sum(x, (1, 2)), lambda x: jnp.sum(x, (2, 3)),
         lambda x: torch.sum(x, (2, 3))),
    Case("reduce_sum over the first axis", [(4, 128, 4096)], lambda x: C.reduce_sum(x, 0), lambda x: jnp.sum(x, 1),
         lambda x: torch.sum(x, 1)),
    Case("reduce_mean over the batch", [(4096, 256)], lambda x: C.reduce_mean(x, C.Axis.default_batch_axis()),
         lambda x: jnp.mean(x, 0), lambda x: torch.mean(x, 0)),
    Case("argmax", [(256, 4096)], lambda x: C.argmax(x, 0), lambda x: jnp.argmax(x, 1).astype(x.dtype),
         lambda x: torch.argmax(x, 1).float(), 0),
    Case("softmax", [(256, 4096)], C.softmax, jax.nn.softmax, lambda x: F.softmax(x, -1)),
    Case("log_softmax", [VECTORS], C.log_softmax, jax.nn.log_softmax, lambda x: F.log_softmax(x, -1)),
    Case("hardmax", [VECTORS], C.hardmax, lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 4096),
         lambda x: F.one_hot(torch.argmax(x, -1), 4096).float(), 0),
    Case("layer normalization", [VECTORS, VECTORS[1:], VECTORS[1:]], layer_normalization, layer_normalized,
         lambda x, s, b: F.layer_norm(x, x.shape[1:], s, b), 3, static=(1, 2)),
    Case("cross entropy, sparse labels", [(256, 4096), (256,)],
         lambda x, i: C.cross_entropy_with_softmax(x, C.one_hot(i, 4096, True)),
         lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i.astype(int)[:, None], 1),
         lambda x, i: F.cross_entropy(x, i.long(), reduction="none"), generators={1: indices(4096, 256)}),
    Case("cross entropy, dense labels", [VECTORS] * 2, lambda x, y: C.cross_entropy_with_softmax(x, y),
         lambda x, y: -jnp.sum(y * jax.nn.log_softmax(x), -1), lambda x, y: F.cross_entropy(x, y, reduction="none"),
         generators={1: distributions(*VECTORS)}),
    Case("binary_cross_entropy", [VECTORS] * 2, C.binary_cross_entropy,
         lambda p, y: -(y * jnp.log(p + 1e-6) + (1 - y) * jnp.log(1 + 1e-6 - p)),
         lambda p, y: F.binary_cross_entropy(p, y, reduction="none"),
         generators={0: probabilities(*VECTORS), 1: probabilities(*VECTORS)}),
    Case("squared_error", [VECTORS] * 2, C.squared_error, lambda x, y: jnp.sum((x - y) ** 2, -1),
         lambda x, y: torch.sum((x - y) ** 2, -1), 2),
    Case("cosine_distance", [VECTORS] * 2, C.cosine_distance, cosine, lambda x, y: F.cosine_similarity(x, y), 2),
    Case("classification_error", [(4096, 256)] * 2, C.classification_error,
         lambda x, y: (jnp.argmax(x, -1) != jnp.argmax(y, -1)).astype(x.dtype),
         lambda x, y: (torch.argmax(x, -1) != torch.argmax(y, -1)).float(), 0, generators={1: one_hot(4096, 256)}),
    Case("times", [(512, 1024), (1024, 1024)], C.times, jnp.matmul, lambda x, w: x @ w, 2, static=(1,)),
    Case("times_transpose", [(512, 1024), (1024, 1024)], C.times_transpose, lambda x, w: x @ w.T, lambda x, w: x @ w.T,
         2, static=(1,)),
    Case("one_hot", [(256,)], lambda i: C.one_hot(i, 4096), lambda i: jax.nn.one_hot(i, 4096),
         lambda i: F.one_hot(i.long(), 4096).float(), 0, generators={0: indices(4096, 256)}),
    Case("times of sparse rows (embedding)", [(30000, 128), (512,)],
         lambda w, i: C.times(C.one_hot(i, 30000, True), w), lambda w, i: w[i.astype(int)],
         lambda w, i: F.embedding(i.long(), w), static=(0,), generators={1: indices(30000, 512)}),
    Case("gather along an axis", [(4096, 256), (64, 128)], lambda w, i: C.gather(w, i), lambda w, i: w[i.astype(int)],
         lambda w, i: w[i.long()], static=(0,), generators={1: indices(4096, 64, 128)}),
    Case("gather of sorted indices", [(4096, 256), (8192,)], lambda w, i: C.gather(w, i), lambda w, i: w[i.astype(int)],
         lambda w, i: w[i.long()], static=(0,), generators={1: lambda rng: np.sort(rng.integers(0, 4096, 8192))}),
    Case("splice and slice", [(256, 2048)] * 2, lambda x, y: C.slice(C.splice(x, y), 0, 100, -100),
         lambda x, y: jnp.concatenate([x, y], 1)[:, 100:-100], lambda x, y: torch.cat([x, y], 1)[:, 100:-100], 2),
    Case("transpose", [IMAGES], lambda x: C.transpose(x, (2, 0, 1)), lambda x: jnp.transpose(x, (0, 3, 1, 2)),
         lambda x: x.permute(0, 3, 1, 2).contiguous()),
    Case("top_k", [(256, 4096)], lambda x: C.combine([C.top_k(x, 8).outputs[0]]), lambda x: lax.top_k(x, 8)[0],
         lambda x: torch.topk(x, 8)[0]),
    Case("convolution 3x3", [IMAGES, (64, 64, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True]),
         convolution, lambda x, w: F.conv2d(x, w, padding=1), 2, static=(1,)),
    Case("convolution 1x1", [IMAGES, (128, 64, 1, 1)], lambda x, w: C.convolution(w, x, auto_padding=[False]),
         lambda x, w: convolution(x, w, pad=0), lambda x, w: F.conv2d(x, w), 2, static=(1,)),
    Case("convolution 5x5, stride 2", [(32, 3, 64, 64), (64, 3, 5, 5)],
         lambda x, w: C.convolution(w, x, (3, 2, 2), auto_padding=[False, False, False]),
         lambda x, w: convolution(x, w, 2, 0), lambda x, w: F.conv2d(x, w, stride=2), 2, static=(1,)),
    Case("convolution in 32 groups", [IMAGES, (64, 2, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True], groups=32),
         lambda x, w: convolution(x, w, feature_group_count=32), lambda x, w: F.conv2d(x, w, padding=1, groups=32), 2,
         static=(1,)),
    Case("convolution 3x3x3", [(4, 16, 16, 16, 16), (16, 16, 3, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True, True]), convolution,
         lambda x, w: F.conv3d(x, w, padding=1), 2, static=(1,)),
    Case("convolution_transpose 2x2, stride 2", [(16, 64, 16, 16), (64, 32, 2, 2)],
         lambda x, w: C.convolution_transpose(w, x, (2, 2), auto_padding=[False]),
         lambda x, w: channels_first(
             lax.conv_transpose(
                 channels_last(x), w, (2, 2), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC"), transpose_kernel=True
             )
         ), lambda x, w: F.conv_transpose2d(x, w, stride=2), 2, static=(1,)),
    Case("max pooling 3x3, stride 2", [IMAGES], lambda x: C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2)),
         lambda x: reduce_window(x, -jnp.inf, lax.max, 3, 2), lambda x: F.max_pool2d(x, 3, 2)),
    Case("max pooling 2x2", [IMAGES], lambda x: C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2)),
         lambda x: reduce_window(x, -jnp.inf, lax.max, 2, 2), lambda x: F.max_pool2d(x, 2)),
    Case("average pooling 3x3, stride 2", [IMAGES], lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2)),
         lambda x: reduce_window(x, 0.0, lax.add, 3, 2) / 9, lambda x: F.avg_pool2d(x, 3, 2)),
    Case("global average pooling", [IMAGES], lambda x: C.layers.GlobalAveragePooling()(x),
         lambda x: jnp.mean(x, (2, 3), keepdims=True), lambda x: F.adaptive_avg_pool2d(x, 1)),
    Case("unpooling 2x2", [(32, 64, 14, 14), IMAGES],
         lambda y, x: C.unpooling(y, x, C.MAX_UNPOOLING, (2, 2), (2, 2)), unpool, torch_unpool),
    Case("roipooling 7x7 of 16 regions", [(2, 64, 32, 32), (2, 16, 4)],
         lambda x, r: C.roipooling(x, r, C.MAX_POOLING, (7, 7), 1.0), region_maxima, None,
         generators={1: regions(2, 16, 32)}),
    Case("depth_to_space", [(32, 64, 28, 28)], lambda x: C.depth_to_space(x, 2), depth_to_space, None),
    Case("local_response_normalization", [IMAGES], lambda x: C.local_response_normalization(x, 2, 1.0, 1e-4, 0.75),
         local_response_normalized, lambda x: F.local_response_norm(x, 5, 5e-4, 0.75, 1.0)),
    Case("batch normalization", [IMAGES, (64,), (64,)], batch_normalization, batch_normalized,
         lambda x, s, b: F.batch_norm(x, None, None, s, b, True), 3, training=True, static=(1, 2)),
    Case("dropout", [VECTORS], lambda x: C.dropout(x, 0.5, seed=1),
         lambda x: jnp.where(jax.random.bernoulli(jax.random.key(1), 0.5, x.shape), 2 * x, 0),
         lambda x: F.dropout(x, 0.5), training=True, random=True),
    Case("random_sample", [(4096,)], lambda w: C.random_sample(w, 256, True, seed=1),
         lambda w: jax.nn.one_hot(jax.random.categorical(jax.random.key(1), jnp.log(w), shape=(256,)), 4096),
         lambda w: F.one_hot(torch.multinomial(w, 256, True), 4096).float(), 0, static=(0,), random=True,
         generators={0: probabilities(4096)}),
]
