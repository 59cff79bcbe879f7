"""Gradients summed over the workers: data-parallel training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.data.packing import bucket
from ..engine.lower.rows import Rows
from . import mpi


@dataclass
class DataParallel:
    """Workers exchange gradients in each step, once there were `after` samples. Until then each trains by itself."""

    after: int = 0
    began: bool = False


def all_reduce(
    gradients: list[list[Any]] | None, numbers: np.ndarray, like: list[list[Any]]
) -> tuple[Any, np.ndarray]:
    """The gradients and numbers of all workers together, from those of this one; None if it has no data.

    `like`: arrays of the shapes and types of the parameters.
    """
    totals = mpi.summed(numbers)
    if not totals[-1]:
        return None, totals
    mine = [None] * sum(map(len, like)) if gradients is None else [g for group in gradients for g in group]
    forms = list(zip(*mpi.gathered([_form(g) for g in mine]), strict=True))
    flat = [p for group in like for p in group]
    total = iter([_total(g, p, form) for g, p, form in zip(mine, flat, forms, strict=True)])
    return [[next(total) for _ in group] for group in like], totals


def _form(gradient: Any) -> str:
    return "none" if gradient is None else "rows" if isinstance(gradient, Rows) else "dense"


def _total(gradient: Any, parameter: Any, forms: tuple[str, ...]) -> Any:
    if "dense" in forms:
        dense = gradient.dense() if isinstance(gradient, Rows) else gradient
        return mpi.summed(np.zeros(parameter.shape, parameter.dtype) if dense is None else np.asarray(dense))
    mine = None if gradient is None else (np.asarray(gradient.indices), np.asarray(gradient.values))
    return joined([rows for rows in mpi.gathered(mine) if rows is not None], parameter.shape[0])


def joined(parts: list[tuple[np.ndarray, np.ndarray]], height: int) -> Rows:
    """The sum of gradients that are rows; their number is rounded up, so that few programs serve all steps."""
    indices, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    occurring = indices < height
    distinct, numbers = np.unique(indices[occurring], return_inverse=True)
    size = bucket(max(len(distinct), 1))
    total = np.zeros((size, *values.shape[1:]), values.dtype)
    np.add.at(total, numbers, values[occurring])
    fill = height + np.arange(size - len(distinct), dtype=np.int32)  # these stand for nothing
    return Rows(np.concatenate([distinct.astype(np.int32), fill]), total, height)
