"""The operations that are measured: each in this package, as a user of JAX writes it, and in PyTorch.

Arrays are as in this package: images [batch, channels, height, width], sequences [time, batch, size]. A side's function
takes the arrays and gives one; `wrt` of them, from the first on, are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import cntkjax as C

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # then its column stays empty
    torch = F = None


@dataclass
class Case:
    """One operation. `ours` makes a Function of input variables; `sequences` tells which arrays have a time axis."""

    name: str
    shapes: list[tuple[int, ...]]
    ours: Callable[..., Any]
    jax: Callable[..., Any]
    torch: Callable[..., Any] | None
    wrt: int = 1
    sequences: bool = False
    training: bool = False
    static: tuple[int, ...] = ()  # places of arrays without a batch axis: weights
    made: dict[int, Callable[[np.random.Generator], np.ndarray]] = field(default_factory=dict)  # other than normal

    def arrays(self) -> list[np.ndarray]:
        """The operands, float32."""
        rng = np.random.default_rng(0)
        return [
            (self.made[i](rng) if i in self.made else 0.3 * rng.standard_normal(shape)).astype(np.float32)
            for i, shape in enumerate(self.shapes)
        ]

    def variables(self) -> list[Any]:
        """The operands of this package's graph."""
        lead = 2 if self.sequences else 1
        make = C.sequence.input_variable if self.sequences else C.input_variable
        return [
            C.input_variable(shape, dynamic_axes=[]) if i in self.static else make(shape[lead:])
            for i, shape in enumerate(self.shapes)
        ]


def indices(high: int, *shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Whole numbers."""
    return lambda rng: rng.integers(0, high, shape)


# ---- as a user of JAX writes it: channels last, where XLA:CPU is fast
def last(x: Any) -> Any:
    return jnp.moveaxis(x, 1, -1)


def first(x: Any) -> Any:
    return jnp.moveaxis(x, -1, 1)


def conv(x: Any, w: Any, stride: int = 1, pad: int = 1, **options: Any) -> Any:
    n = w.ndim - 2
    space = "HWD"[:n]
    numbers = (f"N{space}C", f"OI{space}", f"N{space}C")
    return first(lax.conv_general_dilated(
        last(x), w, (stride,) * n, [(pad, pad)] * n, dimension_numbers=numbers, **options
    ))


def window(x: Any, neutral: float, f: Any, size: int, stride: int) -> Any:
    shape, steps = (1, size, size, 1), (1, stride, stride, 1)
    return first(lax.reduce_window(last(x), neutral, f, shape, steps, "VALID"))


def normalized(x: Any, scale: Any, bias: Any) -> Any:
    mean, var = jnp.mean(x, (0, 2, 3), keepdims=True), jnp.var(x, (0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale[:, None, None] + bias[:, None, None]


def lstm(x: Any, w: Any, r: Any, b: Any) -> Any:
    size = r.shape[0]

    def step(state: Any, now: Any) -> Any:
        h, c = state
        i, g, f, o = jnp.split(now + h @ r, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], size), x.dtype)
    return lax.scan(step, (zero, zero), x @ w + b)[1]


# ---- in this package
def our_lstm(x: Any, w: Any, r: Any, b: Any) -> Any:
    size = r.shape[0]
    projected = C.times(x, w) + b
    h, c = C.placeholder(size), C.placeholder(size)
    gates = projected + C.times(C.sequence.past_value(h), r)
    i, g, f, o = (C.slice(gates, 0, k * size, (k + 1) * size) for k in range(4))
    cell = C.sigmoid(f) * C.sequence.past_value(c) + C.sigmoid(i) * C.tanh(g)
    out = C.sigmoid(o) * C.tanh(cell)
    return out.replace_placeholders({h: out, c: cell})


def batch_normalization(x: Any, scale: Any, bias: Any) -> Any:
    statistics = [C.constant(v, (64,)) for v in (0, 1)]
    return C.batch_normalization(x, scale, bias, *statistics, True, running_count=C.constant(0))


IMAGES = (32, 64, 28, 28)
SEQUENCES = (32, 64, 512)
CASES = [
    Case("sigmoid(x) * tanh(y)", [(256, 4096)] * 2, lambda x, y: C.sigmoid(x) * C.tanh(y),
         lambda x, y: jax.nn.sigmoid(x) * jnp.tanh(y), lambda x, y: torch.sigmoid(x) * torch.tanh(y), 2),
    Case("element_select", [(256, 4096)] * 3, lambda c, x, y: C.element_select(C.greater(c, 0), x, y),
         lambda c, x, y: jnp.where(c > 0, x, y), lambda c, x, y: torch.where(c > 0, x, y), 3),
    Case("reduce_log_sum_exp", [(256, 4096)], lambda x: C.reduce_log_sum_exp(x, 0), lambda x: jax.nn.logsumexp(x, 1),
         lambda x: torch.logsumexp(x, 1)),
    Case("reduce_max", [(256, 4096)], lambda x: C.reduce_max(x, 0), lambda x: jnp.max(x, 1),
         lambda x: torch.amax(x, 1)),
    Case("reduce_mean over the batch", [(4096, 256)], lambda x: C.reduce_mean(x, C.Axis.default_batch_axis()),
         lambda x: jnp.mean(x, 0), lambda x: torch.mean(x, 0)),
    Case("argmax", [(256, 4096)], lambda x: C.argmax(x, 0), lambda x: jnp.argmax(x, 1).astype(x.dtype),
         lambda x: torch.argmax(x, 1).float(), 0),
    Case("softmax", [(256, 4096)], C.softmax, jax.nn.softmax, lambda x: F.softmax(x, -1)),
    Case("cross entropy, sparse labels", [(256, 4096), (256,)],
         lambda x, i: C.cross_entropy_with_softmax(x, C.one_hot(i, 4096, True)),
         lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i.astype(int)[:, None], 1),
         lambda x, i: F.cross_entropy(x, i.long(), reduction="none"), made={1: indices(4096, 256)}),
    Case("times", [(512, 1024), (1024, 1024)], C.times, jnp.matmul, lambda x, w: x @ w, 2, static=(1,)),
    Case("times of sparse rows (embedding)", [(30000, 128), (512,)],
         lambda w, i: C.times(C.one_hot(i, 30000, True), w), lambda w, i: w[i.astype(int)],
         lambda w, i: F.embedding(i.long(), w), static=(0,), made={1: indices(30000, 512)}),
    Case("gather along an axis", [(4096, 256), (64, 128)], lambda w, i: C.gather(w, i), lambda w, i: w[i.astype(int)],
         lambda w, i: w[i.long()], static=(0,), made={1: indices(4096, 64, 128)}),
    Case("splice and slice", [(256, 2048)] * 2, lambda x, y: C.slice(C.splice(x, y), 0, 100, -100),
         lambda x, y: jnp.concatenate([x, y], 1)[:, 100:-100], lambda x, y: torch.cat([x, y], 1)[:, 100:-100], 2),
    Case("transpose", [IMAGES], lambda x: C.transpose(x, (2, 0, 1)), lambda x: jnp.transpose(x, (0, 3, 1, 2)),
         lambda x: x.permute(0, 3, 1, 2).contiguous()),
    Case("top_k", [(256, 4096)], lambda x: C.combine([C.top_k(x, 8).outputs[0]]), lambda x: lax.top_k(x, 8)[0],
         lambda x: torch.topk(x, 8)[0]),
    Case("convolution 3x3", [IMAGES, (64, 64, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True]),
         conv, lambda x, w: F.conv2d(x, w, padding=1), 2, static=(1,)),
    Case("convolution 1x1", [IMAGES, (128, 64, 1, 1)], lambda x, w: C.convolution(w, x, auto_padding=[False]),
         lambda x, w: conv(x, w, pad=0), lambda x, w: F.conv2d(x, w), 2, static=(1,)),
    Case("convolution 5x5, stride 2", [(32, 3, 64, 64), (64, 3, 5, 5)],
         lambda x, w: C.convolution(w, x, (3, 2, 2), auto_padding=[False, False, False]),
         lambda x, w: conv(x, w, 2, 0), lambda x, w: F.conv2d(x, w, stride=2), 2, static=(1,)),
    Case("convolution in 32 groups", [IMAGES, (64, 2, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True], groups=32),
         lambda x, w: conv(x, w, feature_group_count=32), lambda x, w: F.conv2d(x, w, padding=1, groups=32), 2,
         static=(1,)),
    Case("convolution 3x3x3", [(4, 16, 16, 16, 16), (16, 16, 3, 3, 3)],
         lambda x, w: C.convolution(w, x, auto_padding=[False, True, True, True]), conv,
         lambda x, w: F.conv3d(x, w, padding=1), 2, static=(1,)),
    Case("convolution_transpose 2x2, stride 2", [(16, 64, 16, 16), (64, 32, 2, 2)],
         lambda x, w: C.convolution_transpose(w, x, (2, 2), auto_padding=[False]),
         lambda x, w: first(
             lax.conv_transpose(
                 last(x), w, (2, 2), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC"), transpose_kernel=True
             )
         ), lambda x, w: F.conv_transpose2d(x, w, stride=2), 2, static=(1,)),
    Case("max pooling 3x3, stride 2", [IMAGES], lambda x: C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2)),
         lambda x: window(x, -jnp.inf, lax.max, 3, 2), lambda x: F.max_pool2d(x, 3, 2)),
    Case("max pooling 2x2", [IMAGES], lambda x: C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2)),
         lambda x: window(x, -jnp.inf, lax.max, 2, 2), lambda x: F.max_pool2d(x, 2)),
    Case("average pooling 3x3, stride 2", [IMAGES], lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2)),
         lambda x: window(x, 0.0, lax.add, 3, 2) / 9, lambda x: F.avg_pool2d(x, 3, 2)),
    Case("batch normalization", [IMAGES, (64,), (64,)], batch_normalization, normalized,
         lambda x, s, b: F.batch_norm(x, None, None, s, b, True), 3, training=True, static=(1, 2)),
    Case("past_value", [SEQUENCES], C.sequence.past_value, lambda x: jnp.pad(x, ((1, 0), (0, 0), (0, 0)))[:-1],
         lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))[:-1], sequences=True),
    Case("sequence.last", [SEQUENCES], C.sequence.last, lambda x: x[-1], lambda x: x[-1].clone(), sequences=True),
    Case("sequence.reduce_sum", [SEQUENCES], C.sequence.reduce_sum, lambda x: x.sum(0), lambda x: x.sum(0),
         sequences=True),
    Case("sequence.softmax", [SEQUENCES], C.sequence.softmax, lambda x: jax.nn.softmax(x, 0),
         lambda x: F.softmax(x, 0), sequences=True),
    Case("LSTM 256, 32 steps", [(32, 64, 256), (256, 1024), (256, 1024), (1024,)], our_lstm, lstm, None, 4,
         sequences=True, static=(1, 2, 3)),
]  # fmt: skip
