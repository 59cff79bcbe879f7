"""Numbering the cells of a continuous space."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ....._typing import AnyArray, ArrayLike, Shape


class Space(Protocol):
    """A space of gym or gymnasium: Discrete and MultiBinary have `n`; Box has `low`, `high` and `shape`."""

    n: int
    low: AnyArray
    high: AnyArray
    shape: Shape


class BoxSpaceDiscretizer:
    """A Box divided into `resolution` equal parts along each of its dimensions.

    >>> from types import SimpleNamespace
    >>> space = SimpleNamespace(low=np.zeros(2), high=np.ones(2), shape=(2,))
    >>> BoxSpaceDiscretizer(space, 10).discretize([0.1, 0.2])
    12
    """

    def __init__(self, space: Space, resolution: ArrayLike) -> None:
        self._low, self._high = np.asarray(space.low), np.asarray(space.high)
        self._resolution = np.broadcast_to(resolution, self._low.shape)

    def discretize(self, value: ArrayLike) -> int:
        """The number of the cell that contains a value; the last dimension varies fastest."""
        cells = self._get_index(np.asarray(value), self._low, self._high, self._resolution)
        return int(np.ravel_multi_index(tuple(cells.ravel()), tuple(self._resolution.ravel())))

    def _get_index(self, value: np.ndarray, minv: np.ndarray, maxv: np.ndarray, res: np.ndarray) -> np.ndarray:
        cells = ((value - minv) / (maxv - minv) * res).astype(int)
        return np.clip(cells, 0, res - 1)
