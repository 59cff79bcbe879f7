"""What is done to the pixels of one image: the transforms of ``cntkjax.io.transforms`` as functions of arrays.

An image is uint8 or float32 [height, width, channels], colours in the order blue, green, red.
Source: CNTK 2.7 (with OpenCV 3.1), whose results are met within one grey level, and whose random numbers these are:
each draw is the next number, of 32 bits, of the Mersenne Twister that NumPy's ``RandomState`` is, too.
"""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

Pixels = np.ndarray

Taps = list[tuple[np.ndarray, np.ndarray]]  # for each tap: which pixel, and its weight, for each new pixel


class Draws:
    """Random numbers for one transform.

    Example:
        >>> draws = Draws(0)
        >>> round(draws.uniform(0, 1), 7), draws.integers(10)
        (0.5488135, 5)
    """

    def __init__(self, seed: int | None) -> None:
        self._twister = np.random.RandomState(seed)

    def uniform(self, low: float, high: float) -> float:
        """A number of a range."""
        return low + (high - low) * int(self._twister.randint(2**32, dtype=np.uint32)) / 2**32

    def integers(self, number: int) -> int:
        """One of 0, 1, ... below this number; of one, nothing is drawn."""
        return int(self.uniform(0, number)) if number > 1 else 0


Transform = Callable[[Pixels, Draws], Pixels]


def transform_of(description: Mapping[str, Any]) -> Transform:
    """The function that a description means.

    Errors: RuntimeError, as CNTK has it, for values that it cannot have, or a mean file that cannot be read.
    """
    kind = description["type"]
    if kind == "Crop":
        return _crop_of(description)
    if kind == "Scale":
        return _scale_of(description)
    if kind == "Mean":
        return partial(_subtracted, mean_image(description["meanFile"]), description["meanFile"])
    if kind == "Color":
        return _colors_of(description)
    if kind == "Transpose":
        return lambda image, _: image.transpose(2, 0, 1)
    raise RuntimeError(f"images: there is no transform {kind!r}")


# ---- cutting out
_ATTEMPTS = 10  # at a part that is inside of the image; else it is the whole one


def _crop_of(description: Mapping[str, Any]) -> Transform:
    kind = description["cropType"].lower()
    if kind not in ("center", "randomside", "randomarea", "multiview10"):
        raise RuntimeError(f"Invalid crop type: {description['cropType']}.")
    size = [int(n) for n in description["cropSize"].split(":")]
    if min(size) < 0:
        raise RuntimeError(f"Invalid cropSize: {description['cropSize']} has to be 0 or more")
    side, area, aspect = (_range(description, key) for key in ("sideRatio", "areaRatio", "aspectRatio"))
    for name, (low, high) in {"sideRatio": side, "areaRatio": area}.items():
        if high != 0 and not 0 < low <= high <= 1:
            raise RuntimeError(f"Invalid {name}: {description[name]} has to be above 0, and 1 at most")
    if aspect[0] <= 0:
        raise RuntimeError(f"Invalid aspectRatio: {description['aspectRatio']} has to be above 0")
    if side[0] > 0 and area[0] > 0:
        raise RuntimeError("sideRatio and areaRatio cannot be specified simultaneously")
    if description["jitterType"].lower() not in ("none", "uniratio"):
        raise RuntimeError(f"Invalid jitter type: {description['jitterType']}.")
    jitter = description["jitterType"].lower() == "uniratio"

    def crop(image: Pixels, draws: Draws) -> Pixels:
        rows, columns = image.shape[:2]
        width, height = columns, rows
        if min(size) > 0:
            width, height = min(size[0], columns), min(size[-1], rows)
        elif side[0] > 0 or area[0] > 0:
            for _ in range(_ATTEMPTS):
                if side[0] > 0:
                    exact = min(rows, columns) * _drawn(side, jitter, draws)
                else:
                    exact = np.sqrt(rows * columns * _drawn(area, jitter, draws))
                ratio, whole = np.sqrt(_drawn(aspect, jitter, draws)), int(exact + 0.5)
                if ratio != 1 and draws.integers(2):
                    ratio = 1 / ratio
                if whole * ratio < columns + 1 and whole / ratio < rows + 1:
                    width, height = (max(int(n), 1) for n in (whole * ratio, whole / ratio))
                    break
        free = columns - width, rows - height
        if kind == "center":
            left, top = free[0] // 2, free[1] // 2
        elif kind == "multiview10":
            left, top = 0, 0  # the first view is the only one that CNTK 2.7 gives
        else:
            left, top = (draws.integers(n + 1) for n in free)
        part = image[top : top + height, left : left + width]
        return part[:, ::-1] if kind.startswith("random") and draws.uniform(0, 1) < 0.5 else part

    return crop


def _range(description: Mapping[str, Any], key: str) -> tuple[float, float]:
    low, _, high = description[key].partition(":")
    return float(np.float32(low)), float(np.float32(high or low))  # single precision decides how sizes are rounded


def _drawn(bounds: tuple[float, float], jitter: bool, draws: Draws) -> float:
    return draws.uniform(*bounds) if jitter and bounds[0] < bounds[1] else bounds[0]


# ---- scaling
def _scale_of(description: Mapping[str, Any]) -> Transform:
    kernel = {"nearest": _nearest, "linear": _linear, "cubic": _cubic, "lanczos": _lanczos}.get(
        description["interpolations"].lower()
    )
    mode, pad = description["scaleMode"], int(description["padValue"])
    width, height = int(description["width"]), int(description["height"])
    if kernel is None:
        raise RuntimeError("Invalid interpolations value, must be nearest, cubic, lanczos or linear")
    if mode not in ("fill", "crop", "pad"):
        raise RuntimeError("Invalid scaleMode value, must be fill, crop or pad (all lower case)")

    def scale(image: Pixels, _: Draws) -> Pixels:
        if mode == "fill":
            return _resized(image, height, width, kernel)
        rows, columns = image.shape[:2]
        by_width = (width * rows >= height * columns) == (mode == "crop")
        inner_rows = max(int(rows * width / columns + 0.5), 1) if by_width else height
        inner_columns = width if by_width else max(int(columns * height / rows + 0.5), 1)
        inner = _resized(image, inner_rows, inner_columns, kernel)
        top, left = abs(inner.shape[0] - height) // 2, abs(inner.shape[1] - width) // 2
        if mode == "crop":
            return inner[top : top + height, left : left + width]
        around = (top, height - inner.shape[0] - top), (left, width - inner.shape[1] - left), (0, 0)
        if pad < 0:
            return np.pad(inner, around, mode="edge")
        return np.pad(inner, around, constant_values=np.asarray(pad).astype(inner.dtype))

    return scale


def _resized(image: Pixels, rows: int, columns: int, kernel: Callable[[int, int], Taps]) -> Pixels:
    """As OpenCV does it: no smoothing before making it smaller, the nearest pixel outside of the image."""
    made = image.astype(np.float32)
    if rows != image.shape[0]:
        made = np.add.reduce([made[at] * w[:, None, None] for at, w in kernel(image.shape[0], rows)])
    if columns != image.shape[1]:
        made = np.add.reduce([made[:, at] * w[:, None] for at, w in kernel(image.shape[1], columns)])
    return made if image.dtype != np.uint8 else np.clip(np.round(made), 0, 255).astype(np.uint8)


def _nearest(old: int, new: int) -> Taps:
    place = np.minimum(np.arange(new) * old // new, old - 1)
    return [(place, np.ones(new, np.float32))]


def _place(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixel before the middle of each new one, and how far behind it that is."""
    middle = (np.arange(new) + 0.5) * old / new - 0.5
    before = np.floor(middle).astype(int)
    return before, middle - before


def _taps(old: int, before: np.ndarray, first: int, weights: np.ndarray) -> Taps:
    return [(np.clip(before + first + i, 0, old - 1), w.astype(np.float32)) for i, w in enumerate(weights)]


def _linear(old: int, new: int) -> Taps:
    before, t = _place(old, new)
    return _taps(old, before, 0, np.stack([1 - t, t]))


def _cubic(old: int, new: int) -> Taps:
    before, t = _place(old, new)
    a = -0.75

    def near(x: np.ndarray) -> np.ndarray:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    far = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a
    inner = near(t), near(1 - t)
    return _taps(old, before, -1, np.stack([far, *inner, 1 - far - inner[0] - inner[1]]))


def _lanczos(old: int, new: int) -> Taps:
    before, t = _place(old, new)
    x = t - np.arange(-3, 5)[:, None]
    weights = np.sinc(x) * np.sinc(x / 4)
    return _taps(old, before, -3, weights / weights.sum(0))


# ---- values
def mean_image(path: str) -> Pixels:
    """The mean image of an OpenCV XML file: Channel, Row, Col and MeanImg, its values pixel by pixel.

    Errors: RuntimeError if it cannot be read.
    """
    try:
        root = ElementTree.parse(path).getroot()
        shape = tuple(int(root.findtext(key, "")) for key in ("Row", "Col", "Channel"))
        return np.array(root.findtext("MeanImg/data", "").split(), np.float32).reshape(shape)
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise RuntimeError(f"Could not open file: {path} ({error})") from error


def _subtracted(mean: Pixels, path: str, image: Pixels, _: Draws) -> Pixels:
    if mean.shape != image.shape:
        warnings.warn(
            f"the mean image {path!r} is left out: it is {mean.shape} [rows, columns, colours], images {image.shape}",
            stacklevel=2,
        )
        return image
    return image.astype(np.float32) - mean


def _colors_of(description: Mapping[str, Any]) -> Transform:
    keys = "brightnessRadius", "contrastRadius", "saturationRadius"
    brightness, contrast, saturation = (float(description[key]) for key in keys)

    def color(image: Pixels, draws: Draws) -> Pixels:
        made = image.astype(np.float32)
        if brightness or contrast:
            brighter = draws.uniform(-brightness, brightness) if brightness else 0
            steeper = 1 + draws.uniform(-contrast, contrast) if contrast else 1
            made = np.clip(made * np.float32(steeper) + made.mean() * np.float32(brighter), 0, 255)
        if saturation and made.shape[2] == 3:
            brightest = made.max(2, keepdims=True)
            less = (brightest - made) * np.float32(1 + draws.uniform(-saturation, saturation))
            made = np.clip(brightest - less, 0, 255)
        return made

    return color


__all__ = ["Draws", "Transform", "mean_image", "transform_of"]
