"""Gradients in few bits: each worker sums a stripe of all gradients and sends the sum to the others.

Source: Seide, Fu, Droppo, Li and Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs". A column travels as the signs of its values and two values that stand for the
negative and the other ones: their means. In more bits it travels as numbers of equal intervals, which CNTK lays out by
the root of the column's mean square. What that leaves out is added to the next gradient, both by each worker for its
own gradients and by the owner of a stripe for the sum. As in CNTK a column goes along the last axis, of any parameter,
and two workers learn what CNTK's do, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array
from .collectives import part_shape, parts, stripes

NUMBERS_OF_BITS = (1, 2, 4, 8, 16)
_WORD = 32
_ROOTS = 4.0  # values up to this many roots of the mean square have a code of their own


class Errors(NamedTuple):
    """What quantization has left out so far, on one worker; for each gradient that is quantized.

    Shapes: `own`, of the worker's gradients, [columns, length]; `stripes`, of the sums that it is the owner of,
            [columns / workers rounded up, length].
    """

    own: Sequence[AnyArray]
    stripes: Sequence[AnyArray]


def is_compressible(shape: Sequence[int], dtype: np.dtype, bits: int) -> bool:
    """Whether a gradient travels in this many bits. Columns of one value do not in 1, which would not change them."""
    if dtype not in (np.float32, np.float64):
        return False
    return bits in NUMBERS_OF_BITS and (bits > 1 or tuple(shape[-1:]) not in ((), (1,)))


def no_errors(like: Sequence[Any], workers: int) -> Errors:
    """The errors of a worker at the beginning of training. `like`: have the shapes and types of the gradients."""
    columns = [(_columns_shape(g.shape), g.dtype) for g in like]
    own = [np.zeros(shape, dtype) for shape, dtype in columns]
    return Errors(own, [np.zeros((-(-count // workers), length), dtype) for (count, length), dtype in columns])


def all_reduce_in_bits(
    gradients: Sequence[Array], errors: Errors, bits: int, axis: str
) -> tuple[list[Array], Errors]:
    """The sums of gradients over the workers, quantized twice, and the new errors."""
    workers = lax.axis_size(axis)
    columns = [g.reshape(_columns_shape(g.shape)) + error for g, error in zip(gradients, errors.own, strict=True)]
    quantized = [quantize(stripes(c, workers), bits) for c in columns]
    remaining = [c - _whole(dequantize(*part, bits), len(c)) for c, part in zip(columns, quantized, strict=True)]

    received = _unpacked(lax.all_to_all(_packed(quantized, bits), axis, 0, 0), quantized, bits)
    sums = [jnp.sum(dequantize(*part, bits), axis=0) + e for part, e in zip(received, errors.stripes, strict=True)]
    quantized_sums = [quantize(s, bits) for s in sums]
    rests = [s - dequantize(*part, bits) for s, part in zip(sums, quantized_sums, strict=True)]
    message = _packed([(codes[None], scales[None]) for codes, scales in quantized_sums], bits)
    totals = _unpacked(lax.all_gather(message[0], axis), quantized, bits)
    sent = [
        _whole(dequantize(*t, bits), len(c)).reshape(g.shape)
        for t, c, g in zip(totals, columns, gradients, strict=True)
    ]
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


def reduce_scatter_in_16_bits(gradients: Sequence[Array], axis: str) -> list[Array]:
    """This worker's parts of the sums of gradients over the workers; see collectives.py.

    They travel in float16, with a scale for each stripe, and are summed in single precision.
    """
    workers = lax.axis_size(axis)
    message = jnp.concatenate([parts(g, workers).reshape(workers, -1) for g in gradients], axis=1)
    received = lax.all_to_all(_encode_16(message), axis, 0, 0)
    stripe = _decode_16(_encode_16(jnp.sum(_decode_16(received), axis=0)))
    shapes = [part_shape(g.shape, workers) for g in gradients]
    pieces = jnp.split(stripe, np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def quantize(columns: Array, bits: int) -> tuple[Array, Array]:
    """Codes of values, and what the values are found by: the root of the mean square.

    In 1 bit: which values are not negative, and the means of the negative and of the other ones.

    Shapes: [..., length] -> uint32 [..., length], [..., 1], in 1 bit [..., 2].
    """
    if bits == 1:
        return _signs_and_means(columns)
    root = jnp.sqrt(jnp.mean(columns**2, -1, keepdims=True))
    lowest, unit = _lowest_and_unit(jnp.where(root > 0, root, 1), bits)
    return jnp.clip(jnp.floor((columns - lowest) / unit), 0, 2**bits - 1).astype(jnp.uint32), root


def _signs_and_means(columns: Array) -> tuple[Array, Array]:
    signs = columns >= 0
    count = jnp.sum(signs, -1)
    low = jnp.sum(jnp.where(signs, 0, columns), -1) / jnp.maximum(columns.shape[-1] - count, 1)
    high = jnp.sum(jnp.where(signs, columns, 0), -1) / jnp.maximum(count, 1)
    return signs.astype(jnp.uint32), jnp.stack([low, high], -1)


def _lowest_and_unit(root: Array, bits: int) -> tuple[Array, Array]:
    """Where the intervals begin whose numbers are the codes, and how long each is.

    There is one interval less than codes, so that 0 is in the midst of one; the highest code is for larger values.
    """
    return -_ROOTS * root, 2 * _ROOTS * root / (2**bits - 1)


def dequantize(codes: Array, scales: Array, bits: int) -> Array:
    """The values for which codes stand, the middles of their intervals. Shapes: those of `quantize`, back."""
    if bits == 1:
        return jnp.where(codes == 1, scales[..., 1:], scales[..., :1])
    lowest, unit = _lowest_and_unit(scales, bits)
    return (codes.astype(scales.dtype) + 0.5) * unit + lowest


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
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def _whole(stripes: Any, count: int) -> Any:
    return stripes.reshape(-1, stripes.shape[-1])[:count]


# ---- messages: one row of words for each stripe


def _packed(quantized: Sequence[tuple[Array, Array]], bits: int) -> Array:
    """Shapes: ([stripes, columns, length], [stripes, columns, scales]) of each gradient -> uint32 [stripes, words]."""
    words = [part for codes, scales in quantized for part in (_words_of_codes(codes, bits), _words_of_scales(scales))]
    return jnp.concatenate(words, axis=1)


def _unpacked(message: Array, like: Sequence[tuple[Array, Array]], bits: int) -> list[tuple[Array, Array]]:
    """The parts of a message of parts like these, from any number of workers."""
    shapes = [(_words_of_codes(codes, bits).shape[1], _words_of_scales(scales).shape[1]) for codes, scales in like]
    parts = iter(jnp.split(message, np.cumsum(shapes)[:-1], axis=1))
    return [(_codes(next(parts), codes, bits), _scales(next(parts), scales)) for codes, scales in like]


def _words_of_codes(codes: Array, bits: int) -> Array:
    flat, places = codes.reshape(len(codes), -1), _places(bits)
    each = jnp.pad(flat, [(0, 0), (0, -flat.shape[1] % len(places))]).reshape(len(flat), -1, len(places))
    return jnp.sum(each << places, -1, dtype=jnp.uint32)


def _codes(words: Array, like: Array, bits: int) -> Array:
    each = (words[..., None] >> _places(bits)) & (2**bits - 1)
    return each.reshape(len(words), -1)[:, : math.prod(like.shape[1:])].reshape(-1, *like.shape[1:])


def _places(bits: int) -> Array:
    """Where the codes in a word begin."""
    return jnp.arange(0, _WORD, bits, dtype=jnp.uint32)


def _words_of_scales(scales: Array) -> Array:
    return lax.bitcast_convert_type(scales, jnp.uint32).reshape(len(scales), -1)


def _scales(words: Array, like: Array) -> Array:
    each = words.reshape(-1, *like.shape[1:], *([2] if like.dtype == np.float64 else []))
    return lax.bitcast_convert_type(each, like.dtype)


__all__ = [
    "NUMBERS_OF_BITS", "Errors", "all_reduce_in_bits", "dequantize", "gathered_errors", "is_compressible", "no_errors",
    "quantize", "reduce_scatter_in_16_bits", "restored_errors",
]
