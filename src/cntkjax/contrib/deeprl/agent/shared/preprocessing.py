"""Preprocessing of observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np

from ....._typing import ArrayLike, DTypeLike

Shape = tuple[int, ...]


class Preprocessing(ABC):
    """Converts observations to states; it may depend on earlier observations."""

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()

    @abstractmethod
    def output_shape(self) -> Shape:
        """The shape of a state."""

    @abstractmethod
    def reset(self) -> None:
        """Discard earlier observations, at the beginning of an episode."""

    @abstractmethod
    def preprocess(self, observation: ArrayLike) -> np.ndarray:
        """The state after this observation."""


class SlidingWindow(Preprocessing):
    """The last `history_len` observations; zeros before the first.

    >>> SlidingWindow((1,), 2).preprocess(np.ones(1)).tolist()
    [[0.0], [1.0]]
    """

    def __init__(self, input_shape: Sequence[int], history_len: int = 4, dtype: DTypeLike = np.float32) -> None:
        super().__init__(input_shape)
        self.__shape, self.__length, self.__dtype = tuple(input_shape), history_len, dtype
        self.reset()

    def output_shape(self) -> Shape:
        """[history_len, *observation]."""
        return (self.__length, *self.__shape)

    def reset(self) -> None:
        """Fill the window with zeros."""
        zeros = np.zeros(self.__shape, self.__dtype)
        self.__window = deque([zeros] * self.__length, maxlen=self.__length)

    def preprocess(self, x: ArrayLike) -> np.ndarray:
        """The window with x at its end."""
        self.__window.append(np.asarray(x, self.__dtype))
        return np.stack(self.__window)


class AtariPreprocessing(Preprocessing):
    """The last `history_len` frames of a game, in gray and 84 x 84. Each is the maximum of two successive frames,
    because the console draws some sprites only in every other frame.

    Shapes: [height, width, 3], uint8 -> [history_len, 84, 84].
    Source: Mnih et al., Human-level control through deep reinforcement learning, Nature 2015.
    """

    _SIZE = 84
    _LUMA = np.array([0.299, 0.587, 0.114])

    def __init__(self, input_shape: Sequence[int], history_len: int = 4) -> None:
        super().__init__(input_shape)
        self.__input_shape, self.__history_len = tuple(input_shape), history_len
        self.reset()

    def output_shape(self) -> Shape:
        """[history_len, 84, 84]."""
        return (self.__history_len, self._SIZE, self._SIZE)

    def reset(self) -> None:
        """Fill the history with black frames."""
        black = np.zeros((self._SIZE, self._SIZE), np.uint8)
        self.__previous_raw_image = np.zeros(self.__input_shape, np.uint8)
        self.__processed_image_seq = deque([black] * self.__history_len, maxlen=self.__history_len)

    def preprocess(self, image: ArrayLike) -> np.ndarray:
        """The frames, ending with this one."""
        image = np.asarray(image, np.uint8)
        grey = np.maximum(image, self.__previous_raw_image) @ self._LUMA
        self.__previous_raw_image = image
        self.__processed_image_seq.append(np.rint(_resized(grey, self._SIZE)).astype(np.uint8))
        return np.stack(self.__processed_image_seq)


def _resized(image: np.ndarray, size: int) -> np.ndarray:
    """An image resized to a square, by linear interpolation between the centers of pixels."""
    for axis in (0, 1):
        image = np.moveaxis(image, axis, 0)
        positions = np.clip((np.arange(size) + 0.5) * len(image) / size - 0.5, 0, len(image) - 1)
        low = np.minimum(positions.astype(int), len(image) - 2)
        fraction = (positions - low)[:, None]
        image = np.moveaxis(image[low] * (1 - fraction) + image[low + 1] * fraction, 0, axis)
    return image
