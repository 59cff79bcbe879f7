"""Arrays of samples broadcast against each other: their dynamic dimensions come first, those of a sample follow."""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np

from ..._typing import AnyArray, PyTree

A = TypeVar("A", jax.Array, np.ndarray, AnyArray)


def expand_to(array: A, ndim: int) -> A:
    """An array with a number for each sample, say a mask, that broadcasts with samples in `ndim` dimensions.

    Shapes: [*lead] -> [*lead, 1, ..., 1].
    """
    return array.reshape(*array.shape, *(1,) * (ndim - array.ndim))


def pad_rank(data: A, lead: int, ndim: int) -> A:
    """Samples of a lower rank with axes of size 1 before their own; those with `ndim` dimensions or more unchanged.

    Shapes: [*lead, *shape] -> [*lead, 1, ..., 1, *shape], where `lead` counts the leading dimensions.
    """
    missing = ndim - data.ndim
    return data.reshape(*data.shape[:lead], *(1,) * missing, *data.shape[lead:]) if missing > 0 else data


def flat(data: PyTree) -> PyTree:
    """The cells of a grid one after the other, of dense or sparse data.

    Shapes: [time, rows, *shape] -> [cells, *shape].
    """
    return jax.tree.map(lambda d: d.reshape(-1, *d.shape[2:]), data)


__all__ = ["expand_to", "flat", "pad_rank"]
