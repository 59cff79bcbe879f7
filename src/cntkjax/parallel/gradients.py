"""Data-parallel training: gradients summed over the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .._typing import AnyArray, Array
from ..engine.data.packing import bucket
from ..engine.lower.rows import Rows
from . import mpi

Gradient: TypeAlias = "AnyArray | Rows"


@dataclass
class DataParallel:
    """Workers sum their gradients in each step, once `after` samples were seen. Until then each trains by itself.

    `synchronized`: whether the workers have started from the model of worker 0.
    """

    after: int = 0
    synchronized: bool = False


def all_reduce(
    gradients: Sequence[Sequence[Gradient]] | None, sums: np.ndarray, like: Sequence[Sequence[Array]]
) -> tuple[list[list[np.ndarray | Rows]] | None, np.ndarray]:
    """Gradients and sums of all workers, from those of this one.

    `gradients`: of each learner's parameters; None if this worker has no data. The result has none if no worker has.
    `sums`: of the criteria, then the number of samples.
    `like`: arrays with the shapes and types of the parameters.
    """
    totals = mpi.all_reduce(sums)
    if not totals[-1]:
        return None, totals
    parameters = [p for group in like for p in group]
    local = [None] * len(parameters) if gradients is None else [g for group in gradients for g in group]
    formats = list(zip(*mpi.all_gather([_format(g) for g in local]), strict=True))
    reduced = iter([_all_reduce(g, p, f) for g, p, f in zip(local, parameters, formats, strict=True)])
    return [[next(reduced) for _ in group] for group in like], totals


def _format(gradient: Gradient | None) -> str:
    return "none" if gradient is None else "rows" if isinstance(gradient, Rows) else "dense"


def _all_reduce(gradient: Gradient | None, parameter: Array, formats: tuple[str, ...]) -> np.ndarray | Rows:
    """The sum of one gradient, whose `formats` are those of each worker: rows only if no worker has a dense one."""
    if "dense" in formats:
        dense = gradient.dense() if isinstance(gradient, Rows) else gradient
        return mpi.all_reduce(np.zeros(parameter.shape, parameter.dtype) if dense is None else np.asarray(dense))
    assert gradient is None or isinstance(gradient, Rows)
    local = None if gradient is None else (np.asarray(gradient.indices), np.asarray(gradient.values))
    return add_rows([rows for rows in mpi.all_gather(local) if rows is not None], parameter.shape[0])


def add_rows(parts: Sequence[tuple[np.ndarray, np.ndarray]], height: int) -> Rows:
    """The sum of row-sparse gradients, each (indices, values). Their number is rounded up, to limit recompilation.

    Shapes: indices [rows], values [rows, *row shape]; padding has indices from `height`, the height of the parameter.
    """
    indices, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    occurring = indices < height
    distinct, numbers = np.unique(indices[occurring], return_inverse=True)
    size = bucket(max(len(distinct), 1))
    total = np.zeros((size, *values.shape[1:]), values.dtype)
    np.add.at(total, numbers, values[occurring])
    padding = height + np.arange(size - len(distinct), dtype=np.int32)
    return Rows(np.concatenate([distinct.astype(np.int32), padding]), total, height)
