"""Lets XLA:GPU compute many small arrays in few kernels.

XLA:GPU joins kernels of one shape that read the same array into one with several results; a scalar or a constant that
they share does not count. So the updates of parameters of one shape are joined because the learner's scalars are
elements of an array that the host sends (`run/transfers.py`), and what else is small can be made to share one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from ..._typing import Array, PyTree
from .platform import lowering

T = TypeVar("T", bound=PyTree)


def complete(gradients: Sequence[Any]) -> list[Any]:
    """The same gradients; on a GPU those of filters are all computed before any of them is used.

    Otherwise XLA updates some of them before the last product that reads them, and has to copy them first.
    """
    if not lowering().joined_siblings:
        return list(gradients)
    filters = [i for i, g in enumerate(gradients) if getattr(g, "ndim", 0) > 2]
    computed = dict(zip(filters, lax.optimization_barrier([gradients[i] for i in filters]), strict=True))
    return [computed.get(i, g) for i, g in enumerate(gradients)]


def joined_siblings(values: T) -> T:
    """The same values; on a GPU the scalars among them are computed together.

    Each is multiplied by the same 1, an element of an array that XLA does not see through: exact for all numbers.
    """
    if not lowering().joined_siblings:
        return values

    def multiplied(value: Array) -> Array:
        return value * ones[0].astype(value.dtype) if is_float_scalar(value) else value

    def is_float_scalar(value: Array) -> bool:
        return value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.floating)

    if sum(map(is_float_scalar, jax.tree.leaves(values))) < 2:
        return values
    ones = lax.optimization_barrier(jnp.ones(2, jnp.float32))
    return jax.tree.map(multiplied, values)


__all__ = ["complete", "joined_siblings"]
