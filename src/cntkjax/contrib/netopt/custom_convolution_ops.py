"""Values of few bits, with straight-through gradients.

All are compositions of ordinary operations, so that they run on every device and are saved in models that CNTK reads.
Source: CNTK 2.7, and Courbariaux et al. 2016 (Binarized Neural Networks), section 1.3, for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ... import ops
from ..._typing import ArrayLike
from ...graph.axis import Axis
from ...graph.errors import explain
from ...ops._user_functions import register_udf_deserialize_callback
from ...ops.functions import Function
from ...variables import Constant, Parameter, Variable

Value: TypeAlias = Variable | Parameter | Constant | Function  # a function of one output


def CustomSign(input: Value) -> Function:
    """1 where the operand is positive, otherwise -1. The gradient passes through where the operand is in [-1, 1].

    >>> import cntkjax as C
    >>> x = C.input_variable(3, needs_gradient=True)
    >>> CustomSign(x).eval([[-2, 0, 0.5]]), CustomSign(x).grad([[-2, 0, 0.5]])
    (array([[-1., -1.,  1.]], dtype=float32), array([[0., 1., 1.]], dtype=float32))
    """
    return SignWithEstimation(input)


def CustomPySign(input: Value) -> Function:
    """`CustomSign`, which CNTK computes in Python.

    >>> import cntkjax as C
    >>> CustomPySign(C.constant([-2, 0, 0.5])).eval()
    array([-1., -1.,  1.], dtype=float32)
    """
    return pySign(input)


def CustomMultibit(input: Value, bit_map: ArrayLike, mean_bits: float | None = None) -> Function:
    """The operand approximated by `bit_map` bits: a sum of signs, each times a scale for the whole sample.

    A scale is the mean magnitude of the residual of the bits before. The gradient passes through where the magnitude of
    the operand is at most the number of bits.

    `bit_map`: the number of bits, or one for each element. `mean_bits`: draw these at random, with this mean.
    Errors: ValueError for a map of another shape, or numbers that are not positive integers.

    >>> import cntkjax as C
    >>> x = C.input_variable(4)
    >>> CustomMultibit(x, 1).eval([[1, -2, 3, 2]]), CustomMultibit(x, 2).eval([[1, -2, 3, 2]])
    (array([[ 2., -2.,  2.,  2.]], dtype=float32), array([[ 1.5, -2.5,  2.5,  1.5]], dtype=float32))
    """
    return Multibit(input, bit_map if mean_bits is None else _drawn_bits(mean_bits, input.shape))


def CustomMultibitKernel(input: Value, bit_map: ArrayLike, mean_bits: float | None = None) -> Function:
    """`CustomMultibit` for the kernels of a convolution: each filter (the first axis) has its own scales.

    >>> import cntkjax as C
    >>> CustomMultibitKernel(C.parameter((2, 2), init=[[1, -2], [3, 5]]), 1).eval()
    array([[ 1.5, -1.5],
           [ 4. ,  4. ]], dtype=float32)
    """
    return MultibitKernel(input, bit_map if mean_bits is None else _drawn_bits(mean_bits, input.shape))


# ---- the names of CNTK's classes of these functions
def SignWithEstimation(arg: Value, name: str = "SignWithEstimation") -> Function:
    """`CustomSign` with a name.

    >>> import cntkjax as C
    >>> C.user_function(SignWithEstimation(C.constant([-2, 0, 0.5]))).eval()
    array([-1., -1.,  1.], dtype=float32)
    """
    return _as_block(arg, lambda x: _straight_through(x, _sign(x), 1), name, "SignWithEstimation")


def pySign(arg: Value, name: str = "pySign") -> Function:
    """`CustomPySign` with a name.

    >>> import cntkjax as C
    >>> C.user_function(pySign(C.constant([-2, 0, 0.5]))).eval()
    array([-1., -1.,  1.], dtype=float32)
    """
    return SignWithEstimation(arg, name)


def Multibit(arg1: Value, arg2: ArrayLike, name: str = "Multibit") -> Function:
    """`CustomMultibit` with a name; `arg2` is the map of bits.

    >>> import cntkjax as C
    >>> C.user_function(Multibit(C.constant([1, -2, 3, 2]), [2, 2, 2, 2])).eval()
    array([ 1.5, -2.5,  2.5,  1.5], dtype=float32)
    """
    return _multibit(arg1, arg2, Axis.all_static_axes(), name, "Multibit")


def MultibitKernel(arg1: Value, arg2: ArrayLike, name: str = "MultibitKernel") -> Function:
    """`CustomMultibitKernel` with a name; `arg2` is the map of bits.

    >>> import cntkjax as C
    >>> MultibitKernel(C.parameter((2, 2), init=[[1, -2], [3, 5]]), 1).eval()
    array([[ 1.5, -1.5],
           [ 4. ,  4. ]], dtype=float32)
    """
    return _multibit(arg1, arg2, tuple(range(1, len(arg1.shape))), name, "MultibitKernel")


def _multibit(
    operand: Value, bit_map: ArrayLike, axes: Axis | tuple[int, ...], name: str, op_name: str
) -> Function:
    bits = _bits(bit_map, operand.shape)
    dtype = operand.dtype

    def compute(x: Value) -> Function:
        approximation: Any = None
        for bit in range(int(np.max(bits))):
            residual = x if approximation is None else x - approximation
            if np.ndim(bits) == 0 or np.min(bits) > bit:
                scale = ops.reduce_mean(ops.abs(residual), axis=axes)
                part = scale * _sign(residual)
            else:  # elements without a further bit do not count
                mask = ops.constant((bits > bit).astype(dtype))
                total, count = (ops.reduce_sum(v, axis=axes) for v in (ops.abs(residual) * mask, mask))
                part = total / ops.element_max(count, 1) * _sign(residual) * mask
            approximation = part if approximation is None else approximation + part
        return _straight_through(x, approximation, bits if np.ndim(bits) == 0 else ops.constant(bits.astype(dtype)))

    return _as_block(operand, compute, name, op_name)


def _drawn_bits(mean: float, shape: tuple[int, ...]) -> np.ndarray:
    low = int(np.floor(mean))
    return low + (np.random.random(shape) < mean - low)


def _bits(bit_map: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The common number of bits, or one for each element."""
    bits = np.asarray(bit_map)
    if not np.issubdtype(bits.dtype, np.integer) or bits.min(initial=1) < 1:
        raise ValueError(f"numbers of bits are positive integers, not {bit_map!r}")
    if bits.ndim and bits.shape != tuple(shape):
        raise ValueError(explain(
            f"a map of bits of shape {bits.shape} for an operand of shape {tuple(shape)}",
            fix=f"pass one number of bits, or an array of shape {tuple(shape)}",
        ))
    return bits


def _sign(x: Value) -> Function:
    return ops.element_select(ops.greater(x, 0), 1, -1)


def _straight_through(x: Value, value: Value, limit: Constant | np.ndarray | int) -> Function:
    """`value`, with the gradient of x where its magnitude is at most `limit`."""
    passed = ops.clip(x, ops.negate(limit) if isinstance(limit, Function | Constant) else -float(limit), limit)
    return passed + ops.stop_gradient(value - passed)


def _as_block(operand: Value, compute: Callable[[Value], Function], name: str, op_name: str) -> Function:
    x = ops.placeholder(operand.shape, operand.dynamic_axes)
    return ops.as_block(compute(x), [(x, operand)], op_name, name)


def _multibit_from_file(inputs: list[Any], name: str, state: dict[str, Any]) -> Function:
    return Multibit(inputs[0], state["bit_map"].astype(int), name)


register_udf_deserialize_callback("cntk.contrib.netopt.custom_convolution_ops.Multibit", _multibit_from_file)


__all__ = [
    "CustomMultibit", "CustomMultibitKernel", "CustomPySign", "CustomSign", "Multibit", "MultibitKernel",
    "SignWithEstimation", "pySign",
]
