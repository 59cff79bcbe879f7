"""Gradients in 1 or 16 bits: each worker sums a stripe of all gradients and sends the sum to the others.

Source: Seide, Fu, Droppo, Li and Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs". A column travels as the signs of its values and two values that stand for the
negative and the other ones: their means. What that leaves out is added to the next gradient, both by each worker for
its own gradients and by the owner of a stripe for the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array
from .collectives import assembled, part_shape, parts, stripes

_WORD = 32
_SHORTEST_COLUMN = 64  # below it, signs and means save too little


class Errors(NamedTuple):
    """What quantization has left out so far, on one worker; for each gradient of 1 bit.

    Shapes: `own`, of the worker's gradients, [columns, length]; `stripes`, of the sums that it is the owner of,
            [columns / workers rounded up, length].
    """

    own: list[Array]
    stripes: list[Array]


def is_compressible(shape: Sequence[int], dtype: np.dtype, bits: int) -> bool:
    """Whether a gradient travels in this many bits; biases and other small ones travel in 32, as in the paper."""
    if dtype != np.float32 or bits == 32:
        return False
    return bits == 16 or (len(shape) > 1 and _columns_shape(shape)[1] >= _SHORTEST_COLUMN)


def no_errors(shapes: Sequence[Sequence[int]], workers: int) -> Errors:
    """The errors of a worker at the beginning of training."""
    columns = [_columns_shape(shape) for shape in shapes]
    zeros = [jnp.zeros(shape, jnp.float32) for shape in columns]
    return Errors(zeros, [jnp.zeros((-(-count // workers), length), jnp.float32) for count, length in columns])


def all_reduce_in_1_bit(gradients: Sequence[Array], errors: Errors, axis: str) -> tuple[list[Array], Errors]:
    """The sums of gradients over the workers, quantized twice, and the new errors."""
    workers = lax.axis_size(axis)
    columns = [_as_columns(g) + error for g, error in zip(gradients, errors.own, strict=True)]
    divided = [stripes(c, workers) for c in columns]
    quantized = [quantize(s) for s in divided]
    decoded = [dequantize(words, values, s.shape[-1]) for (words, values), s in zip(quantized, divided, strict=True)]
    remaining = [c - _whole(d, len(c)) for c, d in zip(columns, decoded, strict=True)]

    received = _unpacked(lax.all_to_all(_packed(quantized), axis, 0, 0), quantized)
    lengths = [s.shape[-1] for s in divided]
    sums = [
        jnp.sum(dequantize(*part, length), axis=0) + error
        for part, length, error in zip(received, lengths, errors.stripes, strict=True)
    ]
    quantized_sums = [quantize(s) for s in sums]
    rests = [s - dequantize(*part, s.shape[-1]) for s, part in zip(sums, quantized_sums, strict=True)]
    message = _packed([(words[None], values[None]) for words, values in quantized_sums])
    totals = [
        dequantize(*part, length)
        for part, length in zip(_unpacked(lax.all_gather(message[0], axis), quantized), lengths, strict=True)
    ]
    return [_from_columns(_whole(t, _columns_shape(g.shape)[0]), g) for t, g in zip(totals, gradients, strict=True)], \
        Errors(remaining, rests)


def gathered_errors(errors: Errors, axis: str) -> Errors:
    """The errors of all workers. Shapes: those of the errors, with the workers as first axis."""
    return Errors(*([lax.all_gather(array, axis) for array in arrays] for arrays in errors))


def restored_errors(gathered: Errors, worker: int, workers: int) -> Errors:
    """The errors of a worker, from those of all that `gathered_errors` returned, as NumPy arrays.

    Of another number of workers, it gets its share of the sum.
    """
    of_parts, of_sums = gathered
    if all(len(array) == workers for array in of_parts):
        return Errors([array[worker] for array in of_parts], [array[worker] for array in of_sums])
    totals = [o.sum(0) + _whole(s, o.shape[1]) for o, s in zip(of_parts, of_sums, strict=True)]
    nothing = no_errors([total.shape for total in totals], workers)
    return Errors([total / np.float32(workers) for total in totals], nothing.stripes)


def all_reduce_in_16_bits(gradients: Sequence[Array], axis: str) -> list[Array]:
    """The sums of gradients over the workers, in float16 with a scale for each stripe; summed in single precision."""
    totals = _decode_16(lax.all_gather(_sum_in_16_bits(gradients, axis), axis))
    return [assembled(a, g.shape) for a, g in zip(_divided(totals, gradients, len(totals)), gradients, strict=True)]


def reduce_scatter_in_16_bits(gradients: Sequence[Array], axis: str) -> list[Array]:
    """This worker's parts of what `all_reduce_in_16_bits` returns; see collectives.py."""
    return _divided(_decode_16(_sum_in_16_bits(gradients, axis)), gradients, lax.axis_size(axis))


def _sum_in_16_bits(gradients: Sequence[Array], axis: str) -> Array:
    """The sum of this worker's stripe of the gradients, encoded."""
    workers = lax.axis_size(axis)
    message = jnp.concatenate([parts(g, workers).reshape(workers, -1) for g in gradients], axis=1)
    received = lax.all_to_all(_encode_16(message), axis, 0, 0)
    return _encode_16(jnp.sum(_decode_16(received), axis=0))


def _divided(stripe: Array, like: Sequence[Array], workers: int) -> list[Array]:
    """The parts of gradients like these of which a stripe is made. Shapes: [..., n] -> [..., *part]."""
    shapes = [part_shape(g.shape, workers) for g in like]
    pieces = jnp.split(stripe, np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1], axis=-1)
    return [piece.reshape(*stripe.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def quantize(columns: Array) -> tuple[Array, Array]:
    """Signs, packed into words, and the means of the negative and of the other values.

    Shapes: float32 [..., length] -> uint32 [..., length / 32 rounded up], float32 [..., 2].
    """
    positive = columns >= 0
    count = jnp.sum(positive, -1)
    low = jnp.sum(jnp.where(positive, 0, columns), -1) / jnp.maximum(columns.shape[-1] - count, 1)
    high = jnp.sum(jnp.where(positive, columns, 0), -1) / jnp.maximum(count, 1)
    padding = [(0, 0)] * (columns.ndim - 1) + [(0, -columns.shape[-1] % _WORD)]
    bits = jnp.pad(positive, padding).reshape(*columns.shape[:-1], -1, _WORD).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(_WORD, dtype=jnp.uint32), -1, dtype=jnp.uint32), jnp.stack([low, high], -1)


def dequantize(words: Array, values: Array, length: int) -> Array:
    """The values for which words and means stand. Shapes: those of `quantize`, back."""
    bits = (words[..., None] >> jnp.arange(_WORD, dtype=jnp.uint32)) & 1
    positive = bits.reshape(*words.shape[:-1], -1)[..., :length] == 1
    return jnp.where(positive, values[..., 1:], values[..., :1])


def _encode_16(values: Array) -> Array:
    """float16 numbers of a power of 2 times the values, and that scale. Shapes: [..., n] -> uint16 [..., n + 2]."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values), -1, keepdims=True))
    scale = jnp.exp2(jnp.clip(15 - exponent, -126, 126).astype(jnp.float32))  # the largest value becomes 2^14 to 2^15
    numbers = lax.bitcast_convert_type((values * scale).astype(jnp.float16), jnp.uint16)
    return jnp.concatenate([numbers, lax.bitcast_convert_type(scale, jnp.uint16).reshape(*scale.shape[:-1], 2)], -1)


def _decode_16(message: Array) -> Array:
    scale = lax.bitcast_convert_type(message[..., -2:], jnp.float32)
    return lax.bitcast_convert_type(message[..., :-2], jnp.float16).astype(jnp.float32) / scale[..., None]


# ---- columns and stripes


def _columns_shape(shape: Sequence[int]) -> tuple[int, int]:
    first = shape[0] if len(shape) else 1
    rest = int(np.prod(shape[1:]))
    return min(first, rest), max(first, rest)


def _as_columns(gradient: Array) -> Array:
    """The gradient as a matrix of its first axis and the others; columns go along the longer one."""
    matrix = gradient.reshape(gradient.shape[0], -1)
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def _from_columns(columns: Array, like: Array) -> Array:
    rest = like.size // like.shape[0]
    return (columns if like.shape[0] <= rest else columns.T).reshape(like.shape)


def _whole(stripes: Array, count: int) -> Array:
    return stripes.reshape(-1, stripes.shape[-1])[:count]


# ---- messages: one row of words for each stripe


def _packed(quantized: Sequence[tuple[Array, Array]]) -> Array:
    """Shapes: ([stripes, columns, words], [stripes, columns, 2]) of each gradient -> uint32 [stripes, all words]."""
    rows = [a.reshape(len(a), -1) for words, values in quantized for a in (words, _as_words(values))]
    return jnp.concatenate(rows, axis=1)


def _unpacked(message: Array, like: Sequence[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """The parts of a message of parts like these."""
    shapes = [a.shape[1:] for part in like for a in part]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    rows = jnp.split(message, ends[:-1], axis=1)
    arrays = [row.reshape(len(message), *shape) for row, shape in zip(rows, shapes, strict=True)]
    values = [lax.bitcast_convert_type(a, jnp.float32) for a in arrays[1::2]]
    return list(zip(arrays[::2], values, strict=True))


def _as_words(values: Array) -> Array:
    return lax.bitcast_convert_type(values, jnp.uint32)


__all__ = [
    "Errors", "all_reduce_in_16_bits", "all_reduce_in_1_bit", "dequantize", "gathered_errors", "is_compressible",
    "no_errors", "quantize", "reduce_scatter_in_16_bits", "restored_errors",
]
