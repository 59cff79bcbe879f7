"""Gradients in 1 or 16 bits: each worker sums a stripe of all gradients and sends the sum to the others.

Source: Seide, Fu, Droppo, Li and Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs". A column travels as the signs of its values and two values that stand for the
negative and the other ones: their means. What that leaves out is added to the next gradient, both by each worker for
its own gradients and by the owner of a stripe for the sum. As in CNTK a column goes along the last axis, of any
parameter, and two workers learn what CNTK's do, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array
from .collectives import assembled, part_shape, parts, stripes

_WORD = 32


class Errors(NamedTuple):
    """What quantization has left out so far, on one worker; for each gradient of 1 bit.

    Shapes: `own`, of the worker's gradients, [columns, length]; `stripes`, of the sums that it is the owner of,
            [columns / workers rounded up, length].
    """

    own: Sequence[AnyArray]
    stripes: Sequence[AnyArray]


def is_compressible(shape: Sequence[int], dtype: np.dtype, bits: int) -> bool:
    """Whether a gradient travels in this many bits. Columns of one value do not, which 1 bit would not change."""
    if bits == 1:
        return dtype in (np.float32, np.float64) and tuple(shape[-1:]) not in ((), (1,))
    return bits == 16 and dtype == np.float32


def no_errors(like: Sequence[Any], workers: int) -> Errors:
    """The errors of a worker at the beginning of training. `like`: have the shapes and types of the gradients."""
    columns = [(_columns_shape(g.shape), g.dtype) for g in like]
    own = [np.zeros(shape, dtype) for shape, dtype in columns]
    return Errors(own, [np.zeros((-(-count // workers), length), dtype) for (count, length), dtype in columns])


def all_reduce_in_1_bit(gradients: Sequence[Array], errors: Errors, axis: str) -> tuple[list[Array], Errors]:
    """The sums of gradients over the workers, quantized twice, and the new errors."""
    workers = lax.axis_size(axis)
    columns = [g.reshape(_columns_shape(g.shape)) + error for g, error in zip(gradients, errors.own, strict=True)]
    divided = [stripes(c, workers) for c in columns]
    quantized = [quantize(s) for s in divided]
    remaining = [c - _whole(dequantize(*part), len(c)) for c, part in zip(columns, quantized, strict=True)]

    received = _unpacked(lax.all_to_all(_packed(quantized), axis, 0, 0), quantized)
    sums = [jnp.sum(dequantize(*part), axis=0) + e for part, e in zip(received, errors.stripes, strict=True)]
    quantized_sums = [quantize(s) for s in sums]
    rests = [s - dequantize(*part) for s, part in zip(sums, quantized_sums, strict=True)]
    message = _packed([(signs[None], means[None]) for signs, means in quantized_sums])
    totals = [dequantize(*part) for part in _unpacked(lax.all_gather(message[0], axis), quantized)]
    sent = [_whole(t, len(c)).reshape(g.shape) for t, c, g in zip(totals, columns, gradients, strict=True)]
    return sent, Errors(remaining, rests)


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
    return Errors([total / total.dtype.type(workers) for total in totals], no_errors(totals, workers).stripes)


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
    """Which values are not negative, and the means of the negative and of the other ones.

    Shapes: [..., length] -> bool [..., length], [..., 2].
    """
    signs = columns >= 0
    count = jnp.sum(signs, -1)
    low = jnp.sum(jnp.where(signs, 0, columns), -1) / jnp.maximum(columns.shape[-1] - count, 1)
    high = jnp.sum(jnp.where(signs, columns, 0), -1) / jnp.maximum(count, 1)
    return signs, jnp.stack([low, high], -1)


def dequantize(signs: Array, means: Array) -> Array:
    """The values for which signs and means stand. Shapes: those of `quantize`, back."""
    return jnp.where(signs, means[..., 1:], means[..., :1])


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
    return math.prod(shape[:-1]), shape[-1]


def _whole(stripes: Any, count: int) -> Any:
    return stripes.reshape(-1, stripes.shape[-1])[:count]


# ---- messages: one row of words for each stripe


def _packed(quantized: Sequence[tuple[Array, Array]]) -> Array:
    """Shapes: ([stripes, columns, length], [stripes, columns, 2]) of each gradient -> uint32 [stripes, all words]."""
    words = [part for signs, means in quantized for part in (_words_of_signs(signs), _words_of_means(means))]
    return jnp.concatenate(words, axis=1)


def _unpacked(message: Array, like: Sequence[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """The parts of a message of parts like these, from any number of workers."""
    shapes = [(_words_of_signs(signs).shape[1], _words_of_means(means).shape[1]) for signs, means in like]
    parts = iter(jnp.split(message, np.cumsum(shapes)[:-1], axis=1))
    return [(_signs(next(parts), signs), _means(next(parts), means)) for signs, means in like]


def _words_of_signs(signs: Array) -> Array:
    flat = signs.reshape(len(signs), -1)
    bits = jnp.pad(flat, [(0, 0), (0, -flat.shape[1] % _WORD)]).reshape(len(flat), -1, _WORD).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(_WORD, dtype=jnp.uint32), -1, dtype=jnp.uint32)


def _signs(words: Array, like: Array) -> Array:
    bits = (words[..., None] >> jnp.arange(_WORD, dtype=jnp.uint32)) & 1
    return bits.reshape(len(words), -1)[:, : math.prod(like.shape[1:])].reshape(-1, *like.shape[1:]) == 1


def _words_of_means(means: Array) -> Array:
    return lax.bitcast_convert_type(means, jnp.uint32).reshape(len(means), -1)


def _means(words: Array, like: Array) -> Array:
    each = words.reshape(-1, *like.shape[1:], *([2] if like.dtype == np.float64 else []))
    return lax.bitcast_convert_type(each, like.dtype)


__all__ = [
    "Errors", "all_reduce_in_16_bits", "all_reduce_in_1_bit", "dequantize", "gathered_errors", "is_compressible",
    "no_errors", "quantize", "reduce_scatter_in_16_bits", "restored_errors",
]
