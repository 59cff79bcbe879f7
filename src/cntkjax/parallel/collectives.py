"""Sums of arrays over all workers, and parts of arrays, inside an exchange program; small arrays travel together.

An array is divided by its first axis, or where that is short, element by element: each worker has as much of it, and
the last ones have zeros at the end. See `parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array, PyTree
from ..engine.lower.rows import Rows, sum_rows
from ..engine.run.devices import AXIS
from ..engine.xla.platform import lowering

_LEAST_ROWS = 16  # of each worker, if an array is divided by rows: then zeros at the end are few

Collective = Callable[[list[Array]], list[Array]]

Groups: TypeAlias = "list[list[int]] | None"
"""The numbers of the devices of each group; None for one group of all."""


def all_reduce(gradients: PyTree, ready: Sequence[int] = (), groups: Groups = None) -> PyTree:
    """The sums of all arrays and `Rows` of a tree over all workers, or over this device's group.

    `ready`: a number for each gradient, lower if it is ready earlier; those that are ready together travel together.
    """
    arrays, structure = jax.tree.flatten(gradients, is_leaf=lambda g: isinstance(g, Rows))
    dense = [i for i, a in enumerate(arrays) if not isinstance(a, Rows)]
    order = [ready[i] for i in dense] if ready else ()
    sums = in_buckets(partial(_all_reduce, groups=groups), [arrays[i] for i in dense], order)
    sum_of = dict(zip(dense, sums, strict=True))
    results = [_gather_rows(a, groups) if isinstance(a, Rows) else sum_of[i] for i, a in enumerate(arrays)]
    return jax.tree.unflatten(structure, results)


def reduce_scatter(arrays: Sequence[Array], ready: Sequence[int] = ()) -> list[Array]:
    """This worker's parts of the sums of arrays. `ready`: see `all_reduce`."""
    return in_buckets(_reduce_scatter, [parts(a, lax.axis_size(AXIS)) for a in arrays], ready)


def all_gather(own: Sequence[AnyArray], like: Sequence[AnyArray]) -> list[Array]:
    """Whole arrays, from this worker's parts of them. Shapes: those of `part` -> those of `like`."""
    gathered = in_buckets(_all_gather, own)
    return [assembled(a, np.shape(b)) for a, b in zip(gathered, like, strict=True)]


def in_buckets(collective: Collective, arrays: Sequence[Any], ready: Sequence[int] = ()) -> list[Array]:
    """What a collective makes of arrays, of which several of one type travel together. `ready`: see `all_reduce`."""
    order = sorted(range(len(arrays)), key=lambda i: ready[i]) if ready else range(len(arrays))
    choices = lowering()
    most = choices.local_message_bytes if jax.process_count() == 1 else choices.message_bytes
    limit = min(most, sum(a.nbytes for a in arrays) // choices.messages)
    results = list(arrays)
    for bucket in buckets([arrays[i] for i in order], limit):
        places = [order[i] for i in bucket]
        for i, result in zip(places, collective([arrays[i] for i in places]), strict=True):
            results[i] = result
    return results


def buckets(arrays: Sequence[Array], limit: int) -> list[list[int]]:
    """The numbers of arrays that travel together: of one type, and at most `limit` bytes, unless it is a single array.

    >>> buckets([np.zeros(3), np.zeros(9), np.zeros(1), np.zeros(2, np.float32), np.zeros(2)], limit=48)
    [[0, 2, 4], [1], [3]]
    """
    result: list[list[int]] = []
    open_buckets: dict[np.dtype, list[int]] = {}
    free: dict[np.dtype, int] = {}
    for i, array in enumerate(arrays):
        if array.nbytes > limit:
            result.append([i])
            continue
        if array.nbytes > free.get(array.dtype, -1):
            open_buckets[array.dtype], free[array.dtype] = [], limit
            result.append(open_buckets[array.dtype])
        open_buckets[array.dtype].append(i)
        free[array.dtype] -= array.nbytes
    return result


# ---- parts of arrays


def divided_shape(shape: Sequence[int], workers: int) -> tuple[int, ...]:
    """The shape in which an array is divided by its first axis: its own, or if it has few rows, that of its elements.

    >>> divided_shape((64, 3), 4), divided_shape((63, 3), 4), divided_shape((), 4)
    ((64, 3), (189,), (1,))
    """
    has_rows = len(shape) > 0 and shape[0] >= _LEAST_ROWS * workers
    return tuple(shape) if has_rows else (int(np.prod(shape, dtype=int)),)


def part_shape(shape: Sequence[int], workers: int) -> tuple[int, ...]:
    """The shape of a worker's part of an array."""
    first, *row = divided_shape(shape, workers)
    return -(-first // workers), *row


def stripes(array: Array, workers: int) -> Array:
    """Shapes: [n, *row] -> [workers, n / workers rounded up, *row]; the last ones end with zeros."""
    padded = jnp.pad(array, [(0, -len(array) % workers)] + [(0, 0)] * (array.ndim - 1))
    return padded.reshape(workers, -1, *array.shape[1:])


def parts(array: Array, workers: int) -> Array:
    """The parts of all workers. Shapes: any -> [workers, *part]."""
    return stripes(array.reshape(divided_shape(array.shape, workers)), workers)


def part(array: Array) -> Array:
    """This worker's part of an array."""
    return lax.dynamic_index_in_dim(parts(array, lax.axis_size(AXIS)), lax.axis_index(AXIS), keepdims=False)


def assembled(parts: Array, shape: Sequence[int]) -> Array:
    """The array with these parts. Shapes: [workers, *part] -> `shape`."""
    divided = divided_shape(shape, len(parts))
    return parts.reshape(-1, *divided[1:])[: divided[0]].reshape(shape)


# ---- arrays of one type, as one message


def _all_reduce(arrays: list[Array], groups: Groups) -> list[Array]:
    return _together(lambda a: _sum(_widened(a), groups).astype(a.dtype), arrays)


def _sum(array: Array, groups: Groups) -> Array:
    """Of two devices of a process both add the same two numbers, so the sums are equal bit for bit.

    The barrier keeps XLA from computing the own number again, joined with the addition and so rounded differently. All
    that read the array read it through the barrier: otherwise see `engine/xla/materialize.py`.
    Between processes Gloo would send in one direction after the other: 9 instead of 5 s for 55 MB at 100 Mbit/s.
    """
    if lax.axis_size(AXIS) != 2 or jax.process_count() > 1 or not lowering().exchanged_pairs:
        return lax.psum(array, AXIS, axis_index_groups=groups)
    own = lax.optimization_barrier(array)
    return own + lax.ppermute(own, AXIS, [(0, 1), (1, 0)])


def _reduce_scatter(arrays: list[Array]) -> list[Array]:
    """Shapes: [workers, *part] -> [*part]."""
    return _together(lambda a: lax.psum_scatter(_widened(a), AXIS).astype(a.dtype), arrays, are_stripes=True)


def _all_gather(arrays: list[Array]) -> list[Array]:
    """Shapes: [*part] -> [workers, *part]."""
    return _together(lambda a: lax.all_gather(a, AXIS), arrays)


def _widened(array: Array) -> Array:
    """Half precision is summed in single precision."""
    return array.astype(jnp.float32) if array.dtype == jnp.float16 else array


def _together(collective: Callable[[Array], Array], arrays: list[Array], are_stripes: bool = False) -> list[Array]:
    """What a collective makes of arrays as one message. `are_stripes`: they have the workers as their first axis."""
    if len(arrays) == 1:
        return [collective(arrays[0])]
    shapes = [a.shape[1:] if are_stripes else a.shape for a in arrays]
    flat = [a.reshape(len(a), -1) if are_stripes else a.ravel() for a in arrays]
    result = collective(jnp.concatenate(flat, -1))
    pieces = jnp.split(result, np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1], -1)
    return [piece.reshape(*result.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _gather_rows(rows: Rows, groups: Groups) -> Rows:
    """The sum of the rows of all devices of a group."""
    indices, values = (
        lax.all_gather(a, AXIS, axis_index_groups=groups, tiled=True) for a in (rows.indices, rows.values)
    )
    return sum_rows(indices, values, rows.height)


__all__ = [
    "Groups", "all_gather", "all_reduce", "buckets", "assembled", "divided_shape", "part", "part_shape", "parts",
    "reduce_scatter", "stripes",
]
