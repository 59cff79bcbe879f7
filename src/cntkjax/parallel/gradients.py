"""Data-parallel training: gradients summed over the workers, in the program in which the learners use them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array, PyTree
from ..engine.lower.rows import Rows, dense, sum_rows
from ..engine.run.handover import Captures
from ..engine.train.learner import StepLearner
from ..engine.train.update import Gradient, Gradients, Hyperparameters, TrainedState, update_key, updated
from . import workers
from .exchange import AXIS, ExchangeProgram, local

BUCKET_BYTES = 1 << 24
"""Gradients of up to so many bytes travel together: fewer messages, at the cost of a copy."""

_DENSE = -1

Format: TypeAlias = int
"""The form of a gradient: the number of its rows, or `_DENSE`."""


@dataclass
class DataParallel:
    """Workers sum their gradients in each step, once `after` samples were seen. Until then each trains by itself."""

    after: int = 0


class Agreement(NamedTuple):
    """What the workers know of a step before they exchange gradients.

    `samples`: of all workers. `ends_sweep`: whether a sweep ends on any. `formats`: those in which the gradients
    travel.
    """

    samples: int
    ends_sweep: bool
    formats: tuple[Format, ...]


class GradientExchange:
    """The exchange of a trainer's steps: one program, the same on all workers, sums gradients and updates the state.

    `ends_sweep`: of the step that was agreed on last, whether a sweep ends on any worker.
    """

    def __init__(self, learners: Sequence[StepLearner]) -> None:
        self._program = ExchangeProgram(partial(_exchange_and_update, learners))
        self._operation, self._formats = "", tuple[Format, ...]()
        self.ends_sweep = self.is_open = False

    def begin(self, operation: str, ends_sweep: bool) -> None:
        """To be called before a step, with its name for messages, and whether it ends a sweep on this worker."""
        self._operation, self.ends_sweep = operation, ends_sweep

    def agree(self, samples: int, gradients: Gradients | None) -> int:
        """The number of samples of all workers."""
        self.is_open = True  # the others count on this worker's part
        total, self.ends_sweep, self._formats = agree(self._operation, samples, self.ends_sweep, gradients)
        self.is_open = total > 0
        return total

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Run the program."""
        conforming = conform(gradients, state.parameters, self._formats)
        self._program(outputs, update_key(conforming, hypers), state, conforming, sums, hypers)

    def result(self, outputs: PyTree) -> tuple[TrainedState, list[Array]]:
        """The state after the update, and the sums over all workers."""
        self.is_open = False
        return local(outputs)


def _exchange_and_update(
    learners: Sequence[StepLearner], state: TrainedState, gradients: Gradients, sums: list[Array],
    hypers: Sequence[Hyperparameters | None],
) -> tuple[TrainedState, list[Array]]:
    gradients, sums = all_reduce((gradients, sums))
    return updated(learners, state, gradients, hypers), sums


def agree(operation: str, samples: int, ends_sweep: bool, gradients: Gradients | None) -> Agreement:
    """Tell the other workers about this one's minibatch, which their devices may still be computing.

    Rows travel as rows, as many from each worker, unless a worker has a dense gradient.
    """
    formats = [] if gradients is None else [_format(g) for group in gradients for g in group]
    message = json.dumps([samples, ends_sweep, formats]).encode()
    parts = [json.loads(part) for part in workers.gather(operation, message).wait()]
    known = [formats for _, _, formats in parts if formats]
    common = (_DENSE if _DENSE in column else max(column) for column in zip(*known, strict=True))
    return Agreement(sum(part[0] for part in parts), any(part[1] for part in parts), tuple(common))


def conform(gradients: Gradients | None, like: Sequence[Sequence[Array]], formats: Sequence[Format]) -> Gradients:
    """This worker's gradients in the formats in which they travel; zeros if it has none.

    `like`: arrays with the shapes and types of the parameters.
    """
    remaining = iter(formats)
    groups = [[None] * len(group) for group in like] if gradients is None else gradients
    return [
        [_conform(g, p, next(remaining)) for g, p in zip(group, parameters, strict=True)]
        for group, parameters in zip(groups, like, strict=True)
    ]


def all_reduce(gradients: PyTree) -> PyTree:
    """The sums of all arrays and `Rows` of a tree over all workers, inside an exchange program."""
    arrays, structure = jax.tree.flatten(gradients, is_leaf=lambda g: isinstance(g, Rows))
    sums: list[Gradient] = [_gather_rows(g) if isinstance(g, Rows) else g for g in arrays]
    places = [i for i, g in enumerate(arrays) if not isinstance(g, Rows)]
    for bucket in buckets([arrays[i] for i in places]):
        for i, total in zip(bucket, _all_reduce([arrays[places[i]] for i in bucket]), strict=True):
            sums[places[i]] = total
    return jax.tree.unflatten(structure, sums)


def buckets(arrays: Sequence[Array], limit: int = BUCKET_BYTES) -> list[list[int]]:
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


def _all_reduce(arrays: Sequence[Array]) -> list[Array]:
    """The sums of arrays of one type, as one message. Half precision is summed in single precision."""
    dtype, shapes = arrays[0].dtype, [a.shape for a in arrays]
    flat = arrays[0] if len(arrays) == 1 else jnp.concatenate([a.ravel() for a in arrays])
    total = lax.psum(flat.astype(jnp.float32) if dtype == jnp.float16 else flat, AXIS).astype(dtype)
    if len(arrays) == 1:
        return [total]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(jnp.split(total, ends[:-1]), shapes, strict=True)]


def _gather_rows(rows: Rows) -> Rows:
    """The sum of the rows of all workers."""
    indices, values = (lax.all_gather(a, AXIS, tiled=True) for a in (rows.indices, rows.values))
    return sum_rows(indices, values, rows.height)


def _format(gradient: Gradient) -> Format:
    return len(gradient.indices) if isinstance(gradient, Rows) else _DENSE


def _conform(gradient: Gradient | None, parameter: Array, form: Format) -> Gradient:
    if form == _DENSE:
        return _zeros(parameter.shape, parameter.dtype) if gradient is None else _dense(gradient)
    if gradient is None:
        gradient = _no_rows(form, parameter.shape, parameter.dtype)
    assert isinstance(gradient, Rows)
    return gradient if len(gradient.indices) == form else _padded(gradient, form)


def _dense(gradient: Gradient) -> AnyArray:
    return jax.jit(dense)(gradient) if isinstance(gradient, Rows) else gradient


@partial(jax.jit, static_argnums=(0, 1))
def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    return jnp.zeros(shape, dtype)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _no_rows(count: int, shape: tuple[int, ...], dtype: np.dtype) -> Rows:
    padding = shape[0] + jnp.arange(count, dtype=jnp.int32)
    return Rows(padding, jnp.zeros((count, *shape[1:]), dtype), shape[0])


@partial(jax.jit, static_argnums=1)
def _padded(rows: Rows, count: int) -> Rows:
    more = _no_rows(count - len(rows.indices), (rows.height, *rows.values.shape[1:]), rows.dtype)
    indices, values = (jnp.concatenate(p) for p in ((rows.indices, more.indices), (rows.values, more.values)))
    return Rows(indices, values, rows.height)


__all__ = ["Agreement", "DataParallel", "GradientExchange", "agree", "all_reduce", "buckets", "conform"]
