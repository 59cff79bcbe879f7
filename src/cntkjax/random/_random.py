"""Tensors of random numbers, drawn anew in each evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .._typing import DTypeLike, Seed, ShapeLike
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import public
from ..graph.dtypes import as_dtype
from ..graph.seed import AUTO_SEED, resolve_seed
from ..graph.shape import as_shape
from ..ops._blocks import node
from ..ops._operand import Operand, as_variable
from ..ops.functions import Function
from ..primitives.random import RandomDistribution

DType: TypeAlias = DTypeLike | default_override_or

def _with_shape(
    op: Callable[..., Function], kind: str, shape: ShapeLike, dtype: DType, numbers: tuple[float, ...], seed: Seed,
    name: str,
) -> Function:
    option = get_default_override(op, dtype=dtype)
    element_type = np.float32 if option is None else as_dtype(option)
    if element_type not in (np.float32, np.float64):
        raise ValueError(f"{op.__name__}: dtype must be np.float32 or np.float64, got {element_type.__name__}")
    attributes = _attributes(kind, numbers, seed) | {"newShape": as_shape(shape), "newDataType": element_type}
    return node(RandomDistribution, [], attributes, name)


def _like(kind: str, x: Operand, numbers: tuple[float, ...], seed: Seed, name: str) -> Function:
    return node(RandomDistribution, [as_variable(x)], _attributes(kind, numbers, seed), name)


def _attributes(kind: str, numbers: tuple[float, ...], seed: Seed) -> dict[str, object]:
    first, last = numbers[0], numbers[-1]
    if kind == "uniform" and first >= last:
        raise RuntimeError(f"uniform: low ({first}) must be less than high ({last})")
    if kind in ("normal", "gumbel") and last < 0:
        raise RuntimeError(f"{kind}: scale must be non-negative, got {last}")
    if kind == "bernoulli" and not 0 <= first <= 1:
        raise RuntimeError(f"bernoulli: mean must be between 0 and 1, got {first}")
    return {
        "randomDistributionType": kind, "randomDistributionArgs": [float(n) for n in numbers],
        "rngSeed": resolve_seed(seed), "rngOffset": 0,
    }


@public
def uniform(
    shape: ShapeLike, dtype: DType = default_override_or(np.float32), low: float = 0.0, high: float = 1.0,
    seed: Seed = AUTO_SEED, name: str = "",
) -> Function:
    """Uniformly distributed random numbers in [low, high).

    Shapes: the result is [*shape], without dynamic axes.
    Errors: RuntimeError unless low < high.

    >>> x = uniform((2, 3), low=1, high=2, seed=5).eval()
    >>> x.shape, bool((x >= 1).all() and (x < 2).all())
    ((2, 3), True)
    """
    return _with_shape(uniform, "uniform", shape, dtype, (low, high), seed, name)


@public
def uniform_like(x: Operand, low: float = 0.0, high: float = 1.0, seed: Seed = AUTO_SEED, name: str = "") -> Function:
    """Uniformly distributed random numbers in [low, high), with the shape and dynamic axes of x.

    Shapes: x [*shape] -> [*shape].
    Errors: RuntimeError unless low < high.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> uniform_like(x).eval({x: [[0, 0]] * 3}).shape
    (3, 2)
    """
    return _like("uniform", x, (low, high), seed, name)


@public
def normal(
    shape: ShapeLike, dtype: DType = default_override_or(np.float32), mean: float = 0.0, scale: float = 1.0,
    seed: Seed = AUTO_SEED, name: str = "",
) -> Function:
    """Normally distributed random numbers with mean `mean` and standard deviation `scale`.

    Shapes: the result is [*shape], without dynamic axes.
    Errors: RuntimeError for a negative scale.

    >>> normal(100, mean=5, scale=0, seed=1).eval().std()
    np.float32(0.0)
    """
    return _with_shape(normal, "normal", shape, dtype, (mean, scale), seed, name)


@public
def normal_like(x: Operand, mean: float = 0.0, scale: float = 1.0, seed: Seed = AUTO_SEED, name: str = "") -> Function:
    """Normally distributed random numbers with the shape and dynamic axes of x.

    Shapes: x [*shape] -> [*shape].
    Errors: RuntimeError for a negative scale.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> normal_like(x).eval({x: [[0, 0]] * 3}).shape
    (3, 2)
    """
    return _like("normal", x, (mean, scale), seed, name)


@public
def gumbel(
    shape: ShapeLike, dtype: DType = default_override_or(np.float32), loc: float = 0.0, scale: float = 1.0,
    seed: Seed = AUTO_SEED, name: str = "",
) -> Function:
    """Gumbel-distributed random numbers: loc - scale log(-log(u)) for uniform u.

    ``argmax(logits + gumbel_like(logits))`` samples classes with probabilities softmax(logits).

    Shapes: the result is [*shape], without dynamic axes.
    Errors: RuntimeError for a negative scale.

    >>> gumbel((2, 3), loc=1, scale=0).eval().tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return _with_shape(gumbel, "gumbel", shape, dtype, (loc, scale), seed, name)


@public
def gumbel_like(x: Operand, loc: float = 0.0, scale: float = 1.0, seed: Seed = AUTO_SEED, name: str = "") -> Function:
    """Gumbel-distributed random numbers with the shape and dynamic axes of x.

    Shapes: x [*shape] -> [*shape].
    Errors: RuntimeError for a negative scale.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> gumbel_like(x).eval({x: [[0, 0]] * 3}).shape
    (3, 2)
    """
    return _like("gumbel", x, (loc, scale), seed, name)


@public
def bernoulli(
    shape: ShapeLike, dtype: DType = default_override_or(np.float32), mean: float = 0.5, seed: Seed = AUTO_SEED,
    name: str = "",
) -> Function:
    """Bernoulli-distributed random numbers: 1 with probability `mean`, otherwise 0.

    Shapes: the result is [*shape], without dynamic axes.
    Errors: RuntimeError unless the mean is between 0 and 1.

    >>> sorted(set(bernoulli(100, seed=1).eval()))
    [np.float32(0.0), np.float32(1.0)]
    """
    return _with_shape(bernoulli, "bernoulli", shape, dtype, (mean,), seed, name)


@public
def bernoulli_like(x: Operand, mean: float = 0.5, seed: Seed = AUTO_SEED, name: str = "") -> Function:
    """Bernoulli-distributed random numbers with the shape and dynamic axes of x.

    Shapes: x [*shape] -> [*shape].
    Errors: RuntimeError unless the mean is between 0 and 1.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> bernoulli_like(x).eval({x: [[0, 0]] * 3}).shape
    (3, 2)
    """
    return _like("bernoulli", x, (mean,), seed, name)
