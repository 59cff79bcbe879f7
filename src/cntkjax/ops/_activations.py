"""Activations, logical operations, sums and normalizations: blocks of simpler operations, composed as in CNTK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import Count
from ..formats.dictionary import SizeT
from ..graph.arguments import public_operation
from ..graph.axis import Axis
from ..graph.errors import ShapeError, explain
from ..primitives.elementwise import ELEMENTWISE
from ..variables import Constant, Variable
from ._blocks import as_one_block, node
from ._elementwise import (
    abs,
    associative_multi_arg,
    element_divide,
    element_select,
    element_times,
    exp,
    greater,
    less,
    log,
    minus,
    negate,
    not_equal,
    plus,
    sqrt,
)
from ._image import convolution
from ._operand import Operand, as_variable, as_variables, number
from ._reduce import reduce_mean
from ._shape import reshape, splice, transpose
from ._structure import combine
from .functions import Function

__all__ = [
    "depth_to_space", "element_and", "element_max", "element_min", "element_not", "element_or", "element_xor", "elu",
    "hard_sigmoid", "image_scaler", "leaky_relu", "local_response_normalization", "mean", "mean_variance_normalization",
    "param_relu", "per_dim_mean_variance_normalize", "selu", "softsign", "space_to_depth", "sum",
]


def _number(value: float, like: Variable, name: str = "") -> Constant:
    return number(value, like.dtype, name)


# ---- activations
def _bent(x: Variable, below: Callable[[Variable], Any]) -> Function:
    """x where x >= 0, otherwise `below(x)`."""
    return element_select(less(x, _number(0, x)), below(x), x)


def _elu(x: Variable, alpha: float) -> Function:
    return _bent(x, lambda v: element_times(_number(alpha, v), node(ELEMENTWISE["ELU"], [v])))


@public_operation
def elu(x: Operand, alpha: float = 1.0, name: str = "") -> Function:
    """Exponential linear unit: x where x >= 0, otherwise alpha (exp(x) - 1).

    Shapes: [*shape] -> [*shape].
    Source: Clevert et al., arXiv:1511.07289.

    >>> elu([-1, 0, 1]).eval().round(4)
    array([-0.6321,  0.    ,  1.    ], dtype=float32)
    """
    return as_one_block("ELU", lambda v: _elu(v, alpha), [as_variable(x)], name, {"alpha": float(alpha)})


@public_operation
def selu(
    x: Operand, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772, name: str = ""
) -> Function:
    """Scaled exponential linear unit: scale x where x >= 0, otherwise scale alpha (exp(x) - 1).

    Shapes: [*shape] -> [*shape].
    Source: Klambauer et al., arXiv:1706.02515.

    >>> selu([-1, 0, 1]).eval().round(4)
    array([-1.1113,  0.    ,  1.0507], dtype=float32)
    """
    attributes = {"gamma": float(scale), "alpha": float(alpha)}
    return as_one_block(
        "SELU", lambda v: element_times(_number(scale, v), _elu(v, alpha)), [as_variable(x)], name, attributes
    )


@public_operation
def leaky_relu(x: Operand, alpha: float = 0.01, name: str = "") -> Function:
    """Leaky rectified linear unit: x where x >= 0, otherwise alpha x.

    Shapes: [*shape] -> [*shape].

    >>> leaky_relu([-1, 0, 1]).eval()
    array([-0.01,  0.  ,  1.  ], dtype=float32)
    """
    def inner(v: Variable) -> Function:
        return _bent(v, lambda u: element_times(_number(alpha, u), u))

    return as_one_block("LeakyReLU", inner, [as_variable(x)], name, {"alpha": float(alpha)})


@public_operation
def param_relu(alpha: Operand, x: Operand, name: str = "") -> Function:
    """Parametric rectified linear unit: x where x >= 0, otherwise alpha x; `alpha` is typically a trainable parameter.

    Shapes: alpha and x broadcast -> their common shape.
    Source: He et al., arXiv:1502.01852.

    >>> param_relu([0.5, 0.5], [-1, 1]).eval()
    array([-0.5,  1. ], dtype=float32)
    """
    x, alpha = as_variables(x, alpha)
    return as_one_block("PReLU", lambda v, a: _bent(v, lambda u: element_times(a, u)), [x, alpha], name)


@public_operation
def softsign(x: Operand, steepness: float = 1, name: str = "") -> Function:
    """x / (1 + abs(x)), element by element. `steepness` is ignored, as in CNTK.

    Shapes: [*shape] -> [*shape].

    >>> softsign([-1, 0, 3]).eval()
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    return as_one_block(
        "Softsign", lambda v: element_divide(v, plus(abs(v), _number(1, v))), [as_variable(x)], name
    )


@public_operation
def hard_sigmoid(x: Operand, alpha: float, beta: float, name: str = "") -> Function:
    """alpha x + beta, clipped to the interval [0, 1].

    Shapes: [*shape] -> [*shape].

    >>> hard_sigmoid([-2.5, -1, 1], 0.2, 0.5).eval()
    array([0. , 0.3, 0.7], dtype=float32)
    """
    def inner(v: Variable) -> Function:
        line = plus(element_times(v, _number(alpha, v)), _number(beta, v))
        one = _number(1, v)
        capped = element_select(less(line, one), line, one)
        zero = _number(0, v)
        return element_select(greater(capped, zero), capped, zero)

    attributes = {"alpha": np.float32(alpha), "beta": np.float32(beta)}
    return as_one_block("HardSigmoid", inner, [as_variable(x)], name, attributes)


# ---- maximum, minimum, logical operations
@public_operation
@associative_multi_arg
def element_max(left: Operand, right: Operand, name: str = "") -> Function:
    """The elementwise maximum of two or more operands. In a tie the gradient flows to the last operand.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_max([1, 5], [3, 2]).eval()
    array([3., 5.], dtype=float32)
    """
    operands = as_variables(left, right)
    return as_one_block("ElementMax", lambda a, b: element_select(greater(a, b), a, b), operands, name)


@public_operation
@associative_multi_arg
def element_min(left: Operand, right: Operand, name: str = "") -> Function:
    """The elementwise minimum of two or more operands. In a tie the gradient flows to the last operand.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_min([1, 5], [3, 2]).eval()
    array([1., 2.], dtype=float32)
    """
    operands = as_variables(left, right)
    return as_one_block("ElementMin", lambda a, b: element_select(less(a, b), a, b), operands, name)


def _logic(op_name: str, join: Callable[[Any, Any, Constant], Function], x: Operand, y: Operand, name: str) -> Function:
    def inner(a: Variable, b: Variable) -> Function:
        zero = _number(0, a)
        return join(greater(a, zero), greater(b, zero), zero)

    return as_one_block(op_name, inner, as_variables(x, y), name)


@public_operation
def element_and(x: Operand, y: Operand, name: str = "") -> Function:
    """Logical and: 1 where both operands are positive, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_and([1, 1, 0], [1, 0, 0]).eval()
    array([1., 0., 0.], dtype=float32)
    """
    return _logic("And", lambda a, b, zero: greater(element_times(a, b), zero), x, y, name)


@public_operation
def element_or(x: Operand, y: Operand, name: str = "") -> Function:
    """Logical or: 1 where at least one operand is positive, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_or([1, 1, 0], [1, 0, 0]).eval()
    array([1., 1., 0.], dtype=float32)
    """
    return _logic("Or", lambda a, b, zero: greater(plus(a, b), zero), x, y, name)


@public_operation
def element_xor(x: Operand, y: Operand, name: str = "") -> Function:
    """Exclusive or: 1 where exactly one of the operands is positive, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_xor([1, 1, 0], [1, 0, 0]).eval()
    array([0., 1., 0.], dtype=float32)
    """
    return _logic("Xor", lambda a, b, zero: not_equal(a, b), x, y, name)


@public_operation
def element_not(x: Operand, name: str = "") -> Function:
    """Logical not: 1 where x <= 0, otherwise 0.

    Shapes: [*shape] -> [*shape].

    >>> element_not([1, 0]).eval()
    array([0., 1.], dtype=float32)
    """
    def inner(v: Variable) -> Function:
        return plus(negate(greater(v, _number(0, v))), _number(1, v))

    return as_one_block("Not", inner, [as_variable(x)], name)


# ---- sums of several operands
@public_operation
def sum(*operands: Operand, **kw_name: str) -> Function:
    """The elementwise sum of the operands.

    Shapes: operands broadcast, aligned at the last axis.
    Errors: RuntimeError without operands.

    >>> sum([1, 2], [3, 4], [5, 6]).eval()
    array([ 9., 12.], dtype=float32)
    """
    variables, name = _several("sum", operands, kw_name)
    return as_one_block("Sum", _added, variables, name)


@public_operation
def mean(*operands: Operand, **kw_name: str) -> Function:
    """The elementwise mean of the operands.

    Shapes: operands broadcast, aligned at the last axis.
    Errors: RuntimeError without operands.

    >>> mean([1, 2], [3, 4]).eval()
    array([2., 3.], dtype=float32)
    """
    variables, name = _several("mean", operands, kw_name)

    def inner(*arguments: Variable) -> Function:
        total = _added(*arguments).output if len(arguments) > 1 else arguments[0]
        return element_divide(total, Constant(len(arguments), dtype=total.dtype))

    return as_one_block("Mean", inner, variables, name)


def _several(op: str, operands: Sequence[Operand], kw_name: dict[str, str]) -> tuple[list[Variable], str]:
    name = kw_name.pop("name", "")
    if kw_name:
        raise TypeError(f"{op}() got an unexpected keyword argument '{next(iter(kw_name))}'")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    if not operands:
        raise RuntimeError(f"{op}() needs at least one operand: pass them by position or as a list")
    return as_variables(*operands), name


def _added(*arguments: Variable) -> Function:
    if len(arguments) == 1:
        return combine(list(arguments))
    total: Any = arguments[0]
    for argument in arguments[1:]:
        total = plus(total, argument)
    return total


# ---- normalization
@public_operation
def per_dim_mean_variance_normalize(operand: Operand, mean: Operand, inv_stddev: Operand, name: str = "") -> Function:
    """(operand - mean) * inv_stddev, element by element.

    Shapes: operands broadcast, aligned at the last axis.

    >>> per_dim_mean_variance_normalize([1, 2], [1, 1], [2, 2]).eval()
    array([0., 2.], dtype=float32)
    """
    operands = as_variables(operand, mean, inv_stddev)
    return as_one_block(
        "PerDimMeanVarianceNormalize", lambda x, m, s: element_times(minus(x, m), s), operands, name
    )


@public_operation
def mean_variance_normalization(
    operand: Operand, epsilon: float = 0.00001, use_stats_across_channels: bool = False,
    do_variance_scaling: bool = True, name: str = "",
) -> Function:
    """Normalize each sample to mean 0 and, with `do_variance_scaling`, to standard deviation 1.

    The statistics are computed for each channel (first axis) or, with `use_stats_across_channels`, for all channels
    together. `epsilon` is added to the standard deviation to avoid a division by zero.

    Shapes: [C, *spatial] -> [C, *spatial].
    Errors: ValueError for a negative epsilon.

    >>> mean_variance_normalization([[1, 3], [4, 8]], epsilon=0).eval()
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    if epsilon < 0:
        raise ValueError(f"mean_variance_normalization: epsilon must be non-negative, got {epsilon}")
    operand = as_variable(operand)
    rank = len(operand.shape)
    whole = use_stats_across_channels or rank < 2
    axes = [Axis(-i - 1) for i in range(rank if whole else rank - 1)]

    def inner(x: Variable) -> Function:
        centered = minus(x, reduce_mean(x, axes))
        if not do_variance_scaling:
            return centered
        deviation = sqrt(reduce_mean(element_times(centered, centered), axes))
        return element_divide(centered, plus(deviation, _number(epsilon, x, "mvn_epsilon")))

    attributes = {
        "epsilon": float(epsilon), "useStatsAcrossChannels": bool(use_stats_across_channels),
        "doVarianceScaling": bool(do_variance_scaling),
    }
    return as_one_block("MeanVarianceNormalization", inner, [operand], name, attributes)


@public_operation
def local_response_normalization(
    operand: Operand, depth_radius: int, bias: float, alpha: float, beta: float, name: str = ""
) -> Function:
    """x / (bias + alpha mean(x**2))**beta, with the mean over the channels at a distance of at most `depth_radius`.

    Shapes: [C, H, W] -> [C, H, W]. As in CNTK, the window is at most as wide as the number of channels.
    Errors: ValueError for a negative radius; ShapeError for a scalar.
    Source: Krizhevsky et al., NIPS 2012, section 3.3.

    >>> import numpy as np
    >>> local_response_normalization(np.ones((3, 1, 1)), 1, bias=1, alpha=3, beta=1).eval().ravel().round(4)
    array([0.3333, 0.25  , 0.3333], dtype=float32)
    """
    operand = as_variable(operand)
    if depth_radius < 0:
        raise ValueError(f"local_response_normalization: depth_radius must be non-negative, got {depth_radius}")
    if not operand.shape:
        raise ShapeError(explain(
            "local_response_normalization: a scalar has no channels", {"operand": operand},
            "pass an operand of shape [C, H, W]",
        ))
    full = 2 * int(depth_radius) + 1
    window = min(full, operand.shape[0]) if operand.shape[0] > 0 else full

    def inner(x: Variable) -> Function:
        squares = reshape(element_times(x, x), (1, -1), 0, 1)
        kernel = Constant(np.full((1, window, 1, 1), alpha / full, x.dtype or np.float32), dtype=x.dtype)
        near = reshape(convolution(kernel, squares), (-1,), 0, 2)
        base = plus(_number(bias, x), near)
        return element_divide(x, exp(element_times(_number(beta, x), log(base))))

    attributes = {"depthRadius": SizeT(depth_radius), "bias": float(bias), "alpha": float(alpha), "beta": float(beta)}
    return as_one_block("LocalResponseNormalization", inner, [operand], name, attributes)


@public_operation
def image_scaler(x: Operand, scalar: float, biases: Sequence[float], name: str = "") -> Function:
    """scalar x + bias, with one bias for each channel.

    Shapes: x [C, H, W], C biases -> [C, H, W].
    Errors: ShapeError unless x is [C, H, W] and there are C biases.

    >>> image_scaler(np.ones((2, 1, 1)), 2, [10, 20]).eval().ravel()
    array([12., 22.], dtype=float32)
    """
    x = as_variable(x)
    if len(x.shape) != 3 or len(biases) != x.shape[0]:
        raise ShapeError(explain(
            f"image_scaler: {len(biases)} biases need an image with as many channels", {"x": x},
            "pass x of shape [C, H, W] and one bias for each channel",
        ))

    def inner(v: Variable) -> Function:
        scaled = element_times(v, _number(scalar, v))
        bias = splice(*[Constant(b, dtype=v.dtype) for b in biases])
        return plus(scaled, reshape(bias, (len(biases), 1, 1)))

    attributes = {"Scaler": np.float32(scalar), "Biases": [np.float32(b) for b in biases]}
    return as_one_block("ImageScaler", inner, [x], name, attributes)


# ---- channels and space
@public_operation
def depth_to_space(operand: Operand, block_size: Count, name: str = "") -> Function:
    """Rearrange channels into spatial blocks of `block_size` x `block_size` pixels (b x b below).

    Shapes: [b * b * C, H, W] -> [C, b * H, b * W].
    Errors: ShapeError if the operand is not [C, H, W] or its number of channels is not divisible by b * b.

    >>> depth_to_space(np.arange(4.).reshape(4, 1, 1), 2).eval()
    array([[[0., 1.],
            [2., 3.]]], dtype=float32)
    """
    operand, b = as_variable(operand), int(block_size)
    _is_image("depth_to_space", operand)
    if operand.shape[0] % (b * b):
        raise ShapeError(explain(
            f"depth_to_space: the number of channels must be divisible by {b} x {b}", {"operand": operand},
            "choose another block_size or number of channels",
        ))

    def inner(x: Variable) -> Function:
        apart = transpose(reshape(x, (b, b, -1), 0, 1), (2, 3, 0, 4, 1))
        return reshape(reshape(apart, (-1,), 1, 3), (-1,), 2, 4)

    return as_one_block("DepthToSpace", inner, [operand], name, {"blockSize": SizeT(b)})


@public_operation
def space_to_depth(operand: Operand, block_size: Count, name: str = "") -> Function:
    """Rearrange spatial blocks of `block_size` x `block_size` pixels into channels: the inverse of `depth_to_space`.

    Shapes: [C, b * H, b * W] -> [b * b * C, H, W] with b = `block_size`.
    Errors: ShapeError if the operand is not [C, H, W] or its height or width is not divisible by b.

    >>> space_to_depth([[[0, 1], [2, 3]]], 2).eval().ravel()
    array([0., 1., 2., 3.], dtype=float32)
    """
    operand, b = as_variable(operand), int(block_size)
    _is_image("space_to_depth", operand)
    if operand.shape[1] % b or operand.shape[2] % b:
        raise ShapeError(explain(
            f"space_to_depth: height and width must be divisible by {b}", {"operand": operand},
            "choose another block_size, or pad or crop the image",
        ))

    def inner(x: Variable) -> Function:
        apart = reshape(reshape(x, (-1, b), 2, 3), (-1, b), 1, 2)
        return reshape(transpose(apart, (2, 4, 0, 1, 3)), (-1,), 0, 3)

    return as_one_block("SpaceToDepth", inner, [operand], name, {"blockSize": SizeT(b)})


def _is_image(op: str, operand: Variable) -> None:
    if len(operand.shape) != 3:
        raise ShapeError(explain(
            f"{op}: the operand needs the shape [C, H, W]", {"operand": operand}, "use cntk.reshape first"
        ))
