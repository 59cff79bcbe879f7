"""Values of few bits, with gradients that go through as if they were not rounded.

All are made of ordinary operations, so that they compute on every device and are saved in models that CNTK 2.7 reads.
Source: CNTK 2.7, and Courbariaux et al. 2016 (Binarized Neural Networks), section 1.3, for the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...graph.axis import Axis
from ...ops.functions import Function
from ...variables import Constant


def CustomSign(input: Any) -> Function:
    """1 where the operand is positive, otherwise -1. The gradient is that of the operand where it is within [-1, 1].

    >>> import cntkjax as C
    >>> x = C.input_variable(3, needs_gradient=True)
    >>> CustomSign(x).eval([[-2, 0, 0.5]]), CustomSign(x).grad([[-2, 0, 0.5]])
    (array([[-1., -1.,  1.]], dtype=float32), array([[0., 1., 1.]], dtype=float32))
    """
    return _as_block(input, lambda x: _through(x, _sign(x), 1), "SignWithEstimation")


CustomPySign = CustomSign


def CustomMultibit(input: Any, bit_map: Any, mean_bits: float | None = None) -> Function:
    """The operand as a sum of signs, each times one number for the whole sample: what `bit_map` bits can say of it.

    The number is the mean magnitude of what the bits before it left over. The gradient is that of the operand where
    its magnitude is at most the number of bits.

    `bit_map`: the number of bits, or one for each element. `mean_bits`: draw these so that they have this mean.
    Errors: ValueError for a map of another shape, or numbers that are not positive and whole.

    >>> import cntkjax as C
    >>> x = C.input_variable(4)
    >>> CustomMultibit(x, 1).eval([[1, -2, 3, 2]]), CustomMultibit(x, 2).eval([[1, -2, 3, 2]])
    (array([[ 2., -2.,  2.,  2.]], dtype=float32), array([[ 1.5, -2.5,  2.5,  1.5]], dtype=float32))
    """
    return _multibit(input, bit_map, mean_bits, Axis.all_static_axes(), "Multibit")


def CustomMultibitKernel(input: Any, bit_map: Any, mean_bits: float | None = None) -> Function:
    """`CustomMultibit` for the kernels of a convolution: each filter (the first axis) has numbers of its own.

    >>> import cntkjax as C
    >>> CustomMultibitKernel(C.parameter((2, 2), init=[[1, -2], [3, 5]]), 1).eval()
    array([[ 1.5, -1.5],
           [ 4. ,  4. ]], dtype=float32)
    """
    return _multibit(input, bit_map, mean_bits, tuple(range(1, len(input.shape))), "MultibitKernel")


def _multibit(operand: Any, bit_map: Any, mean_bits: float | None, over: Any, name: str) -> Function:
    bits = _bits(bit_map, mean_bits, operand.shape)
    dtype = operand.dtype

    def compute(x: Any) -> Any:
        made: Any = None
        for bit in range(int(np.max(bits))):
            left = x if made is None else x - made
            if np.ndim(bits) == 0 or np.min(bits) > bit:
                scale = ops.reduce_mean(ops.abs(left), axis=over)
                part = scale * _sign(left)
            else:  # elements that have no more bits have no say
                here = ops.constant((bits > bit).astype(dtype))
                total, count = (ops.reduce_sum(v, axis=over) for v in (ops.abs(left) * here, here))
                part = total / ops.element_max(count, 1) * _sign(left) * here
            made = part if made is None else made + part
        return _through(x, made, bits if np.ndim(bits) == 0 else ops.constant(bits.astype(dtype)))

    return _as_block(operand, compute, name)


def _bits(bit_map: Any, mean_bits: float | None, shape: tuple[int, ...]) -> np.ndarray:
    """The number of bits of all elements, or of each."""
    if mean_bits is not None:
        low = int(np.floor(mean_bits))
        return low + (np.random.random(shape) < mean_bits - low)
    bits = np.asarray(bit_map)
    if not np.issubdtype(bits.dtype, np.integer) or bits.min(initial=1) < 1:
        raise ValueError(f"bits are positive whole numbers, not {bit_map!r}")
    if bits.ndim and bits.shape != tuple(shape):
        raise ValueError(f"a map of bits of shape {bits.shape} for an operand of shape {tuple(shape)}")
    return bits


def _sign(x: Any) -> Any:
    return ops.element_select(ops.greater(x, 0), 1, -1)


def _through(x: Any, made: Any, limit: Any) -> Any:
    """`made`, with the gradient of x where its magnitude is at most `limit`."""
    passed = ops.clip(x, ops.negate(limit) if isinstance(limit, Function | Constant) else -float(limit), limit)
    return passed + ops.stop_gradient(made - passed)


def _as_block(operand: Any, compute: Any, name: str) -> Function:
    x = ops.placeholder(operand.shape, operand.dynamic_axes)
    return ops.as_block(compute(x), [(x, operand)], name, name)


__all__ = ["CustomMultibit", "CustomMultibitKernel", "CustomPySign", "CustomSign"]
