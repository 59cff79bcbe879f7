"""Tensors of random numbers, drawn anew at each evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..default_options import default_override_or, get_default_override
from ..graph.dtypes import as_dtype
from ..graph.seed import AUTO_SEED, resolve_seed
from ..graph.shape import as_shape
from ..ops._blocks import node
from ..ops._operand import Operand, as_variable
from ..ops.functions import Function
from ..primitives.random import RandomDistribution


def _fresh(op: Any, kind: str, shape: Any, dtype: Any, numbers: tuple[float, ...], seed: int, name: str) -> Function:
    dtype = get_default_override(op, dtype=dtype)
    dtype = np.float32 if dtype is None else as_dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"{op.__name__}: the type has to be float32 or float64, not {dtype.__name__}")
    attributes = _attributes(kind, numbers, seed) | {"newShape": as_shape(shape), "newDataType": dtype}
    return node(RandomDistribution, [], attributes, name)


def _like(kind: str, x: Operand, numbers: tuple[float, ...], seed: int, name: str) -> Function:
    return node(RandomDistribution, [as_variable(x)], _attributes(kind, numbers, seed), name)


def _attributes(kind: str, numbers: tuple[float, ...], seed: int) -> dict[str, Any]:
    first, last = numbers[0], numbers[-1]
    if kind == "uniform" and first >= last:
        raise RuntimeError(f"uniform: the low end of the range ({first}) has to be below the high end ({last})")
    if kind in ("normal", "gumbel") and last < 0:
        raise RuntimeError(f"{kind}: the scale ({last}) must not be negative")
    if kind == "bernoulli" and not 0 <= first <= 1:
        raise RuntimeError(f"bernoulli: the mean ({first}) has to be between 0 and 1")
    return {
        "randomDistributionType": kind, "randomDistributionArgs": [float(n) for n in numbers],
        "rngSeed": resolve_seed(seed), "rngOffset": 0,
    }


def uniform(
    shape: Any, dtype: Any = default_override_or(np.float32), low: float = 0.0, high: float = 1.0,
    seed: int = AUTO_SEED, name: str = "",
) -> Function:
    """Random numbers between `low` and `high`, all equally likely.

    Errors: RuntimeError unless low < high.

    >>> x = uniform((2, 3), low=1, high=2, seed=5).eval()
    >>> x.shape, bool((x >= 1).all() and (x < 2).all())
    ((2, 3), True)
    """
    return _fresh(uniform, "uniform", shape, dtype, (low, high), seed, name)


def uniform_like(x: Operand, low: float = 0.0, high: float = 1.0, seed: int = AUTO_SEED, name: str = "") -> Function:
    """Random numbers between `low` and `high` in the shape of x, dynamic axes included."""
    return _like("uniform", x, (low, high), seed, name)


def normal(
    shape: Any, dtype: Any = default_override_or(np.float32), mean: float = 0.0, scale: float = 1.0,
    seed: int = AUTO_SEED, name: str = "",
) -> Function:
    """Normally distributed random numbers with a mean and a standard deviation (`scale`).

    >>> normal(100, mean=5, scale=0, seed=1).eval().std()
    np.float32(0.0)
    """
    return _fresh(normal, "normal", shape, dtype, (mean, scale), seed, name)


def normal_like(x: Operand, mean: float = 0.0, scale: float = 1.0, seed: int = AUTO_SEED, name: str = "") -> Function:
    """Normally distributed random numbers in the shape of x, dynamic axes included."""
    return _like("normal", x, (mean, scale), seed, name)


def gumbel(
    shape: Any, dtype: Any = default_override_or(np.float32), loc: float = 0.0, scale: float = 1.0,
    seed: int = AUTO_SEED, name: str = "",
) -> Function:
    """Gumbel distributed random numbers, loc - scale log(-log(u)) for uniform u.

    ``argmax(logits + gumbel_like(logits))`` draws classes with probabilities softmax(logits).
    """
    return _fresh(gumbel, "gumbel", shape, dtype, (loc, scale), seed, name)


def gumbel_like(x: Operand, loc: float = 0.0, scale: float = 1.0, seed: int = AUTO_SEED, name: str = "") -> Function:
    """Gumbel distributed random numbers in the shape of x, dynamic axes included."""
    return _like("gumbel", x, (loc, scale), seed, name)


def bernoulli(
    shape: Any, dtype: Any = default_override_or(np.float32), mean: float = 0.5, seed: int = AUTO_SEED, name: str = ""
) -> Function:
    """1 with the probability `mean`, otherwise 0.

    >>> sorted(set(bernoulli(100, seed=1).eval()))
    [np.float32(0.0), np.float32(1.0)]
    """
    return _fresh(bernoulli, "bernoulli", shape, dtype, (mean,), seed, name)


def bernoulli_like(x: Operand, mean: float = 0.5, seed: int = AUTO_SEED, name: str = "") -> Function:
    """1 with the probability `mean`, otherwise 0, in the shape of x, dynamic axes included."""
    return _like("bernoulli", x, (mean,), seed, name)
