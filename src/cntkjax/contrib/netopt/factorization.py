"""Dense layers whose weight is a product of two smaller matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ... import layers, ops
from ...default_options import default_override_or, get_default_override
from ...graph.shape import INFERRED
from ...initializer import glorot_uniform
from ...misc import convert
from ...ops.functions import Function, identity
from .custom_convolution_ops import Value

_DEFAULT: Mapping[str, Any] = MappingProxyType({"W1": None, "W2": None})
Pair = tuple[np.ndarray, np.ndarray]


def svd_subprojection(matrix: np.ndarray, k: int) -> Pair:
    """The best approximation of a matrix [m, n] by a product [m, k] times [k, n], by singular value decomposition.

    >>> U, V = svd_subprojection(np.array([[3., 0.], [0., 1.]]), 1)
    >>> abs(U @ V)
    array([[3., 0.],
           [0., 0.]])
    """
    U, s, V = np.linalg.svd(matrix, full_matrices=False)
    return U[:, :k], s[:k, None] * V[:k]


def factor_dense(
    model: Function, projection_function: Callable[[np.ndarray], int] | None = None,
    filter_function: Callable[[Any], bool] | None = None, factor_function: Callable[..., Pair] | None = None,
) -> Function:
    """A copy of the model with layers `DenseFactored` in place of Dense, with weights W1 and W2 instead of W.

    `projection_function`: the inner size k for a weight [in, out]. `filter_function`: whether a Dense block is
    factored, by default all whose weight is a matrix. `factor_function`: the factors of a weight; its arguments are the
    weight and k (if there is a projection function), by default `svd_subprojection`. Bias, activation and name stay.
    The model itself does not change.
    Shapes: W [in, out] -> W1 [in, k], W2 [k, out].
    Errors: ValueError without `projection_function` and `factor_function`, or for factors of other shapes.

    >>> import cntkjax as C
    >>> x = C.input_variable(4)
    >>> small = factor_dense(C.layers.Dense(6, init=1)(x), projection_function=lambda W: 1)
    >>> [(p.name, p.shape) for p in small.parameters], small.eval({x: [[1, 2, 3, 4]]}).round(3)
    ([('W2', (1, 6)), ('W1', (4, 1)), ('b', (6,))], array([[10., 10., 10., 10., 10., 10.]], dtype=float32))
    """
    if projection_function is None and factor_function is None:
        raise ValueError("factor_dense: pass a projection_function, which maps a weight to the number of columns of W1")

    def is_selected(block: Function) -> bool:
        return (
            block.op_name == "Dense" and len(block.W.shape) == 2
            and (filter_function is None or filter_function(block))
        )

    def factored(block: Function) -> Function:
        W = block.W
        value = W.value
        k = () if projection_function is None else (projection_function(value),)
        W1, W2 = (np.asarray(m, W.dtype) for m in (factor_function or svd_subprojection)(value, *k))
        if W1.ndim != 2 or W2.ndim != 2 or not 0 < W1.shape[1] == W2.shape[0] or (len(W1), W2.shape[1]) != W.shape:
            raise ValueError(f"factor_dense: factors of shapes {W1.shape} and {W2.shape} for a weight {W.shape}")
        first, second = ops.parameter(W1.shape, W1, W.dtype, name="W1"), ops.parameter(W2.shape, W2, W.dtype, name="W2")
        arguments = [argument for argument, _ in block.block_arguments_mapping]
        placeholders = {argument: ops.placeholder(name=argument.name) for argument in arguments}
        inside = convert(
            ops.as_composite(block.block_root).clone("share", placeholders), lambda f: f.op_name == "Times",
            lambda f: ops.times(ops.times(f.inputs[0], first), second),
        )
        pairs = [(placeholders[argument], operand) for argument, operand in block.block_arguments_mapping]
        return ops.as_block(inside, pairs, "DenseFactored", block.name)

    return convert(model, is_selected, factored)


def dense_factored(
    shapes: Sequence[int], activation: Any = default_override_or(identity), init: Mapping[str, Any] = _DEFAULT,
    input_rank: int | None = None, map_rank: int | None = None, bias: Any = default_override_or(True),
    init_bias: Any = default_override_or(0), name: str = "",
) -> Function:
    """The layer ``activation(x @ W1 @ W2 + b)``.

    `shapes`: the inner and the output size. `init`: initial values of W1 and W2; None is glorot_uniform.
    Shapes: [in] -> [out], W1 [in, k], W2 [k, out], where (k, out) = `shapes`.
    Errors: ValueError if `init` names other weights than W1 and W2, or for `input_rank` or `map_rank`, which only
            Dense supports.

    >>> import cntkjax as C
    >>> layer = dense_factored((2, 3), init={"W1": 1, "W2": 1})
    >>> layer(C.input_variable(4)).eval([[1, 2, 3, 4]])
    array([[20., 20., 20.]], dtype=float32)
    """
    inner, outer = shapes
    if set(init) != {"W1", "W2"}:
        raise ValueError(f"dense_factored: init is for W1 and W2, not for {', '.join(init) or 'nothing'}")
    if input_rank is not None or map_rank is not None:
        raise ValueError("dense_factored: its operand is a vector; leave out input_rank and map_rank, or use Dense")
    arguments = {"activation": activation, "bias": bias, "init_bias": init_bias}
    options = {key: get_default_override(layers.Dense, **{key: value}) for key, value in arguments.items()}
    first, second = (glorot_uniform() if init[key] is None else init[key] for key in ("W1", "W2"))
    W1 = ops.parameter((INFERRED, inner), init=first, name="W1")
    W2 = ops.parameter((inner, outer), init=second, name="W2")
    b = ops.parameter(outer, init=options["init_bias"], name="b") if options["bias"] else None

    @ops.BlockFunction("DenseFactored", name)
    def dense(x: Value) -> Function:
        product = ops.times(ops.times(x, W1), W2)
        return options["activation"](product if b is None else product + b)

    return dense


__all__ = ["dense_factored", "factor_dense", "svd_subprojection"]
