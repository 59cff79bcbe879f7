"""The operations on sequences that are measured; see op_cases.py.

Arrays are [time, batch, size]. Where lengths vary, this package gets a grid with several sequences in a row, as it
packs them itself; the other sides get padded arrays and the lengths. All return one value per sequence.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

import cntkjax as C
from benchmarks.op_cases import Case, F, Generator, torch

Sequence = C.sequence


# ---- as a user of JAX writes it
def lstm(x: Array, w: Array, r: Array, b: Array) -> Array:
    """An LSTM as a scan."""
    size = r.shape[0]

    def step(state: Array, now: Array) -> Array:
        h, c = state
        i, g, f, o = jnp.split(now + h @ r, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], size), x.dtype)
    return lax.scan(step, (zero, zero), x @ w + b)[1]


def mask(x: Array, lengths: Array) -> Array:
    """True within each sequence. Shapes: [time, batch, 1]."""
    return jnp.arange(len(x))[:, None, None] < lengths[:, None]


def softmax_pooled(x: Array, lengths: Array) -> Array:
    """The sum of softmax(x) * x over the steps."""
    inside = mask(x, lengths)
    return jnp.sum(jax.nn.softmax(jnp.where(inside, x, -jnp.inf), 0) * jnp.where(inside, x, 0), 0)


def ctc(x: Array, labels: Array) -> Array:
    """Labels are given per frame, so there may be as many as frames; the blank is the last token."""
    marked = jnp.any(labels > 0, -1).T
    order = jnp.argsort(~marked, axis=1, stable=True)
    tokens = jnp.take_along_axis(jnp.argmax(labels, -1).T, order, 1)
    padding = (jnp.arange(len(x)) >= jnp.sum(marked, 1)[:, None]).astype(x.dtype)
    scores = x.swapaxes(0, 1)
    return jnp.sum(optax.ctc_loss(scores, jnp.zeros(scores.shape[:2]), tokens, padding, blank_id=x.shape[-1] - 1))


def edit_distance(x: Array, y: Array) -> Array:
    """The number of substitutions, insertions and deletions, computed row by row."""
    a, b = jnp.argmax(x, -1), jnp.argmax(y, -1).T
    columns = jnp.arange(b.shape[1] + 1)

    def row(above: Array, now: Array) -> Array:
        token, i = now
        best = jnp.minimum(above[:, 1:] + 1, above[:, :-1] + (token[:, None] != b))
        best = jnp.concatenate([jnp.full((len(b), 1), i), best], 1)
        return lax.cummin(best - columns, axis=1) + columns, None

    start = jnp.broadcast_to(columns, (len(b), len(columns)))
    return jnp.sum(lax.scan(row, start, (a, jnp.arange(1, len(a) + 1)))[0][:, -1]).astype(x.dtype)


def compacted(x: Array, flags: Array) -> tuple[Array, Array]:
    """The steps whose flag is 1, moved to the front and followed by zeros; and the original index of each step."""
    order = jnp.argsort(flags == 0, axis=0, stable=True)
    count = jnp.sum(flags, 0)
    return jnp.where(mask(x, count), jnp.take_along_axis(x, order[..., None], 0), 0), order


def gathered_sum(x: Array, flags: Array) -> Array:
    """The sum of the steps whose flag is 1."""
    return jnp.sum(compacted(x, flags)[0], 0)


def scattered(x: Array, flags: Array) -> Array:
    """The steps whose flag is 1, and zeros elsewhere."""
    steps, order = compacted(x, flags)
    return jnp.take_along_axis(steps, jnp.argsort(order, axis=0)[..., None], 0)


# ---- in PyTorch
def torch_ctc(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The CTC loss of the same labels."""
    one_each, lengths = torch.argmax(labels[::4], -1).T, [len(x)] * x.shape[1]
    return F.ctc_loss(
        torch.log_softmax(x, -1), one_each, lengths, [one_each.shape[1]] * x.shape[1], x.shape[-1] - 1, "sum"
    )


def torch_mask(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """True within each sequence. Shapes: [time, batch, 1]."""
    return torch.arange(len(x))[:, None, None] < lengths[:, None]


def torch_compacted(x: torch.Tensor, flags: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `compacted`."""
    order = torch.argsort(flags == 0, dim=0, stable=True)
    steps = torch.take_along_dim(x, order[..., None], 0)
    return steps * torch_mask(x, flags.sum(0)), order


def torch_scattered(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """As `scattered`."""
    steps, order = torch_compacted(x, flags)
    return torch.take_along_dim(steps, torch.argsort(order, dim=0)[..., None], 0)


def torch_softmax_pooled(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """As `softmax_pooled`."""
    inside = torch_mask(x, lengths)
    return (torch.softmax(x.masked_fill(~inside, -torch.inf), 0) * x.masked_fill(~inside, 0)).sum(0)


# ---- in this package
def cntk_lstm(x: C.Variable, w: C.Variable, r: C.Variable, b: C.Variable) -> C.Function:
    """An LSTM as a recurrent graph."""
    size = r.shape[0]
    projected = C.times(x, w) + b
    h, c = C.placeholder(size), C.placeholder(size)
    gates = projected + C.times(C.sequence.past_value(h), r)
    i, g, f, o = (C.slice(gates, 0, k * size, (k + 1) * size) for k in range(4))
    cell = C.sigmoid(f) * C.sequence.past_value(c) + C.sigmoid(i) * C.tanh(g)
    out = C.sigmoid(o) * C.tanh(cell)
    return out.replace_placeholders({h: out, c: cell})


def labels(steps: int, n: int, tokens: int) -> Generator:
    """A label every fourth step, none of them the last token."""
    def make(rng: np.random.Generator) -> np.ndarray:
        marks = np.zeros((steps, n, tokens))
        indices = rng.integers(0, tokens - 1, (steps // 4, n))
        np.put_along_axis(marks[::4], indices[..., None], 2, -1)
        return marks

    return make


SEQUENCES = (32, 64, 512)
FLAGS = {1: lambda rng: rng.integers(0, 2, (32, 64))}
TOKENS = (64, 32, 64)
equal = partial(Case, sequences=True)
varied = partial(Case, sequences=True, lengths=(1, 32))
CASES = [
    equal("past_value", [SEQUENCES], Sequence.past_value, lambda x: jnp.pad(x, ((1, 0), (0, 0), (0, 0)))[:-1],
         lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))[:-1]),
    equal("sequence.last", [SEQUENCES], Sequence.last, lambda x: x[-1], lambda x: x[-1].clone()),
    equal("sequence.reduce_sum", [SEQUENCES], Sequence.reduce_sum, lambda x: x.sum(0), lambda x: x.sum(0)),
    equal("sequence.softmax", [SEQUENCES], Sequence.softmax, lambda x: jax.nn.softmax(x, 0),
         lambda x: F.softmax(x, 0)),
    equal("LSTM 256, 32 steps", [(32, 64, 256), (256, 1024), (256, 1024), (1024,)], cntk_lstm, lstm, None, 4,
          static=(1, 2, 3)),
    equal("sequence.first", [SEQUENCES], Sequence.first, lambda x: x[0], lambda x: x[0].clone()),
    equal("sequence.slice", [SEQUENCES], lambda x: Sequence.slice(x, 1, 0), lambda x: x[1:], lambda x: x[1:].clone()),
    equal("sequence.reduce_max", [SEQUENCES], Sequence.reduce_max, lambda x: x.max(0), lambda x: x.amax(0)),
    equal("sequence.broadcast_as", [SEQUENCES], lambda x: x * Sequence.broadcast_as(Sequence.last(x), x),
          lambda x: x * x[-1], lambda x: x * x[-1]),
    equal("sequence.unpack", [SEQUENCES], lambda x: Sequence.unpack(x, 0, True), lambda x: jnp.swapaxes(x, 0, 1),
          lambda x: x.swapaxes(0, 1).contiguous()),
    equal("sequence.gather, summed", [SEQUENCES, SEQUENCES[:2]],
          lambda x, c: Sequence.reduce_sum(Sequence.gather(x, c)), gathered_sum,
          lambda x, c: torch_compacted(x, c)[0].sum(0),
          generators=FLAGS),
    equal("sequence.scatter", [SEQUENCES, SEQUENCES[:2]], lambda x, c: Sequence.scatter(Sequence.gather(x, c), c),
          scattered, torch_scattered, generators=FLAGS),
    equal("forward_backward (CTC)", [TOKENS] * 2, lambda x, y: C.forward_backward(C.labels_to_graph(y), x, 63), ctc,
          torch_ctc, generators={1: labels(*TOKENS)}),
    equal("edit_distance_error", [TOKENS] * 2, C.edit_distance_error, edit_distance, None, 0),
    varied("sequence.last, lengths 1 to 32", [SEQUENCES], Sequence.last,
            lambda x, n: jnp.take_along_axis(x, n[None, :, None] - 1, 0)[0],
            lambda x, n: x[n - 1, torch.arange(len(n))]),
    varied("sequence.first, lengths 1 to 32", [SEQUENCES], Sequence.first, lambda x, n: x[0],
            lambda x, n: x[0].clone()),
    varied("sequence.reduce_sum, lengths 1 to 32", [SEQUENCES], Sequence.reduce_sum,
            lambda x, n: jnp.sum(jnp.where(mask(x, n), x, 0), 0),
            lambda x, n: x.masked_fill(~torch_mask(x, n), 0).sum(0)),
    varied("sequence.reduce_max, lengths 1 to 32", [SEQUENCES], Sequence.reduce_max,
            lambda x, n: jnp.max(jnp.where(mask(x, n), x, -jnp.inf), 0),
            lambda x, n: x.masked_fill(~torch_mask(x, n), -torch.inf).amax(0)),
    varied("sequence.softmax, pooled, lengths 1 to 32", [SEQUENCES],
            lambda x: Sequence.reduce_sum(Sequence.softmax(x) * x), softmax_pooled, torch_softmax_pooled),
    varied("past_value, summed, lengths 1 to 32", [SEQUENCES], lambda x: Sequence.reduce_sum(Sequence.past_value(x)),
            lambda x, n: jnp.sum(jnp.where(mask(x, n - 1), x, 0), 0),
            lambda x, n: x.masked_fill(~torch_mask(x, n - 1), 0).sum(0)),
]
