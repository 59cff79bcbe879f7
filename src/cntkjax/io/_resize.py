"""Resizing images as OpenCV 3.1 does, which CNTK 2.7 used: no antialiasing, the nearest pixel outside of the image.

Images of whole numbers are resized in its fixed-point arithmetic, to the pixel. Today's OpenCV, if it is installed,
gives the same for all but cubic interpolation, and is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import numpy as np

Pixels = np.ndarray

KINDS = "nearest", "cubic", "lanczos", "linear"
_ONE = 2048  # of the weights in fixed-point arithmetic
_PIXELS_AT_ONCE = 8  # numbers that the processor computes together; the others in a row are rounded differently

_Kernel = Callable[[np.ndarray], np.ndarray]  # distance from the old pixel before -> weights of taps, [taps, new]


@cache
def opencv() -> ModuleType | None:
    """OpenCV, if it is installed."""
    try:
        import cv2  # loaded late, as it is optional
    except ImportError:
        return None
    return cv2


def mirrored(image: Pixels) -> Pixels:
    """An image with its columns in reverse order. Shapes: [height, width, channels]."""
    cv2 = opencv()
    if cv2 is None or image.dtype not in (np.uint8, np.float32):
        return image[:, ::-1]
    return cv2.flip(image, 1).reshape(image.shape)  # a copy, but OpenCV would make a slower one of a view


def store_planes(image: Pixels, planes: np.ndarray) -> None:
    """Store an image with a plane for each channel.

    Shapes: uint8 or float32 [height, width, channels], float32 [channels, height, width].
    """
    cv2 = opencv()
    channels = image.transpose(2, 0, 1) if cv2 is None or len(planes) == 1 else cv2.split(image)
    for plane, channel in zip(planes, channels, strict=True):
        plane[...] = channel


def resized(image: Pixels, rows: int, columns: int, kind: str) -> Pixels:
    """An image of another size; ``kind`` is one of KINDS.

    Shapes: uint8 or float32 [height, width, channels] -> [rows, columns, channels].
    """
    if image.shape[:2] == (rows, columns):
        return image
    if kind == "nearest":
        return image[_nearest(image.shape[0], rows)][:, _nearest(image.shape[1], columns)]
    if image.dtype != np.uint8:
        return _interpolated(image.astype(np.float32), rows, columns, kind)
    cv2 = opencv()
    if cv2 is None or kind == "cubic":
        return _fixed_point(image, rows, columns, kind)
    method = cv2.INTER_LINEAR if kind == "linear" else cv2.INTER_LANCZOS4
    return cv2.resize(image, (columns, rows), interpolation=method).reshape(rows, columns, -1)


def _ratio(old: int, new: int) -> float:
    """Rounded as OpenCV rounds it."""
    return 1 / (new / old)


def _nearest(old: int, new: int) -> np.ndarray:
    return np.minimum(np.floor(np.arange(new) * _ratio(old, new)).astype(np.int64), old - 1)


def _linear(t: np.ndarray) -> np.ndarray:
    return np.stack([1 - t, t])


def _cubic(t: np.ndarray) -> np.ndarray:
    a, one = np.float32(-0.75), np.float32(1)

    def near(x: np.ndarray) -> np.ndarray:
        return ((a + 2) * x - (a + 3)) * x * x + one

    far = ((a * (t + one) - 5 * a) * (t + one) + 8 * a) * (t + one) - 4 * a
    inner = near(t), near(one - t)
    return np.stack([far, *inner, one - far - inner[0] - inner[1]])


def _lanczos(t: np.ndarray) -> np.ndarray:
    x = t - np.arange(-3, 5, dtype=np.float64)[:, None]
    weights = np.sinc(x) * np.sinc(x / 4)
    return (weights / weights.sum(0)).astype(np.float32)


_KERNELS: dict[str, _Kernel] = {"linear": _linear, "cubic": _cubic, "lanczos": _lanczos}


def _taps(old: int, new: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Old pixels and their weights for each new pixel. Shapes: int64, float32 [taps, new]."""
    middle = ((np.arange(new) + 0.5) * _ratio(old, new) - 0.5).astype(np.float32)
    before = np.floor(middle)
    weights = _KERNELS[kind]((middle - before).astype(np.float32))
    first = 1 - len(weights) // 2
    pixels = before.astype(np.int64) + first + np.arange(len(weights))[:, None]
    return np.clip(pixels, 0, old - 1), weights


def _interpolated(image: Pixels, rows: int, columns: int, kind: str) -> Pixels:
    if rows != image.shape[0]:
        taps = zip(*_taps(image.shape[0], rows, kind), strict=True)
        image = np.add.reduce([image[pixels] * weights[:, None, None] for pixels, weights in taps])
    if columns != image.shape[1]:
        taps = zip(*_taps(image.shape[1], columns, kind), strict=True)
        image = np.add.reduce([image[:, pixels] * weights[:, None] for pixels, weights in taps])
    return image


def _fixed_point(image: Pixels, rows: int, columns: int, kind: str) -> Pixels:
    (across, weights_across), (down, weights_down) = (
        (pixels, np.rint(weights * _ONE).astype(np.int32))
        for pixels, weights in (_taps(image.shape[1], columns, kind), _taps(image.shape[0], rows, kind))
    )
    wide = image.astype(np.int32)
    lines = sum(wide[:, pixels] * weights[:, None] for pixels, weights in zip(across, weights_across, strict=True))
    lines = np.asarray(lines).reshape(image.shape[0], -1)
    taps = [lines[pixels] for pixels in down]
    weights = [w[:, None] for w in weights_down]
    values = _linear_sum(taps, weights) if kind == "linear" else _rounded_sum(taps, weights)
    if kind == "cubic":
        together = lines.shape[1] - lines.shape[1] % _PIXELS_AT_ONCE
        values[:, :together] = _float_sum([line[:, :together] for line in taps], weights)
    return np.clip(values, 0, 255).astype(np.uint8).reshape(rows, columns, -1)


def _linear_sum(lines: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    return (sum(((line >> 4) * w) >> 16 for line, w in zip(lines, weights, strict=True)) + 2) >> 2


def _rounded_sum(lines: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    total = sum(line.astype(np.int64) * w for line, w in zip(lines, weights, strict=True))
    return np.asarray(total + _ONE * _ONE // 2) // (_ONE * _ONE)


def _float_sum(lines: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    scale = np.float32(1 / (_ONE * _ONE))
    terms = [line.astype(np.float32) * (w.astype(np.float32) * scale) for line, w in zip(lines, weights, strict=True)]
    return np.rint(sum(terms[1:], terms[0]))


__all__ = ["KINDS", "mirrored", "opencv", "resized", "store_planes"]
