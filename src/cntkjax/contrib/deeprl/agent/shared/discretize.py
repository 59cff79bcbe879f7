"""Numbers for the cells of a continuous space."""

from __future__ import annotations

from typing import Any

import numpy as np


class BoxSpaceDiscretizer:
    """A box (with `low`, `high` and `shape`) cut into `resolution` equal parts along each of its dimensions.

    Example:
        >>> from types import SimpleNamespace
        >>> space = SimpleNamespace(low=np.zeros(2), high=np.ones(2), shape=(2,))
        >>> BoxSpaceDiscretizer(space, 10).discretize([0.1, 0.2])
        12
    """

    def __init__(self, space: Any, resolution: Any) -> None:
        self._low, self._high = np.asarray(space.low), np.asarray(space.high)
        self._resolution = np.broadcast_to(resolution, self._low.shape)

    def discretize(self, value: Any) -> int:
        """The number of the cell that a value lies in, the last dimension counting fastest."""
        cells = self._get_index(np.asarray(value), self._low, self._high, self._resolution)
        return int(np.ravel_multi_index(tuple(cells.ravel()), tuple(self._resolution.ravel())))

    def _get_index(self, value: Any, minv: Any, maxv: Any, res: Any) -> np.ndarray:
        cells = ((value - minv) / (maxv - minv) * res).astype(int)
        return np.clip(cells, 0, res - 1)
