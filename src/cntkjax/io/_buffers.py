"""Memory of minibatches that is used again: on virtual machines a page's first use costs more than filling it."""

from __future__ import annotations

import sys
import time

import numpy as np

_MOST = 4
_USUAL = 2  # one that the caller has, and one that is filled ahead
_ATTEMPTS, _PAUSE = 4, 0.001  # the caller lets go of its minibatch just when the next one is handed over
_EXAMPLE = [np.empty(0)]
_UNUSED = sys.getrefcount(_EXAMPLE[0])  # of an array that only a list holds


class Buffers:
    """Arrays of float32 that are handed out again once nothing else refers to them, views and programs included.

    >>> buffers = Buffers()
    >>> first = buffers.empty((2, 3))
    >>> address = first.ctypes.data
    >>> del first
    >>> second = buffers.empty((1, 3))
    >>> second.ctypes.data == address
    True
    >>> np.may_share_memory(buffers.empty((2, 3)), second)
    False
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of any content, with memory of its own. Shapes: float32 `shape`."""
        arrays = self._arrays
        for _ in range(_ATTEMPTS if len(arrays) == _USUAL else 1):
            for i in range(len(arrays)):
                if sys.getrefcount(arrays[i]) == _UNUSED and _fits(arrays[i], shape):
                    return arrays[i][: shape[0]]
            time.sleep(_PAUSE if len(arrays) == _USUAL else 0)
        arrays.insert(0, np.empty(shape, np.float32))
        del arrays[_MOST:]
        return arrays[0][:]

    def clear(self) -> None:
        """Free what nothing else refers to."""
        self._arrays = []


def _fits(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    return array.shape[1:] == shape[1:] and len(array) // 2 <= shape[0] <= len(array)
