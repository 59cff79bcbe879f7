"""Transforms of the pixels of one image: the functions behind the descriptions of ``cntkjax.io.transforms``.

An image is uint8 or float32 [height, width, channels], channels in the order blue, green, red.
Source: CNTK 2.7 with OpenCV 3.1, whose results are reproduced to the pixel, with the same random numbers: each is the
next 32-bit number of the Mersenne Twister that NumPy's ``RandomState`` also implements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import exp, log, log1p, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from .._user_code import warn
from ._files import open_binary
from ._resize import KINDS, Pixels, mirrored, resized

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ANY_SEED = np.random.SeedSequence(0)  # asking the system for one takes as long as scaling an image


class TransformRandom:
    """Random numbers for one transform.

    >>> random = TransformRandom(0)
    >>> round(random.uniform(0, 1), 7), random.integer(10)
    (0.5488135, 5)
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed

    @cached_property
    def _next(self) -> Callable[[], int]:
        twister = np.random.MT19937(_ANY_SEED)
        np.random.RandomState(twister).seed(self._seed)  # `MT19937(seed)` begins in another state
        return twister.random_raw

    def uniform(self, low: float, high: float) -> float:
        """A number in the range [low, high)."""
        return low + (high - low) * self._next() / 2**32

    def normal(self) -> float:
        """A number of the standard normal distribution, by a ziggurat of 128 layers, as in CNTK.

        Beyond the lowest layer, in one of 1,700 numbers, CNTK draws its exponential numbers in another way.
        Source: Doornik, "An improved ziggurat method to generate normal random samples" (2005).
        """
        widths, heights = _ziggurat()
        while True:
            bits = self._next()
            sign, layer = (bits & 1) * 2 - 1, (bits & 255) >> 1
            x = (bits >> 8) / 2**24 * widths[layer]
            if x < widths[layer + 1]:
                return sign * x
            if layer == 0:
                return sign * self._beyond(widths[1])
            if self.uniform(heights[layer], heights[layer + 1]) < exp(-x * x / 2):
                return sign * x

    def _beyond(self, bound: float) -> float:
        while True:
            x, y = -log1p(-self.uniform(0, 1)) / bound, -log1p(-self.uniform(0, 1))
            if 2 * y > x * x:
                return bound + x

    def integer(self, stop: int) -> int:
        """One of 0, 1, ..., stop - 1; if there is only one choice, no random number is consumed."""
        return int(self.uniform(0, stop)) if stop > 1 else 0


@cache
def _ziggurat() -> tuple[list[float], list[float]]:
    """The widths of the layers, from the lowest, and the heights at which they begin; all have the same area."""
    bound, area = 3.442619855896652, 9.91256303526217e-3
    widths = [area / exp(-bound * bound / 2), bound]
    while len(widths) < 128:
        widths.append(sqrt(-2 * log(area / widths[-1] + exp(-widths[-1] ** 2 / 2))))
    widths.append(0.0)
    return widths, [exp(-x * x / 2) for x in widths]


Transform = Callable[[Pixels, TransformRandom], Pixels]


def as_transform(description: Mapping[str, Any]) -> Transform:
    """The function that a description specifies.

    Errors: RuntimeError, as in CNTK, for invalid values, an unknown type, or a mean file that cannot be read.
    """
    kind = description["type"]
    factory = _FACTORIES.get(kind)
    if factory is None:
        raise RuntimeError(
            f"images: there is no transform {kind!r}; use those of cntkjax.io.transforms: crop, scale, mean, color"
        )
    return factory(description)


# ---- cropping
_MAX_ATTEMPTS = 10  # at a random crop inside of the image; if all fail, the image is not cropped


@dataclass(frozen=True)
class _Crop:
    """Crops an image, and may mirror half of the images. Ranges are (low, high); zero: not used."""

    kind: str
    size: list[int]  # width and height in pixels, or one number for both
    side: tuple[float, float]
    area: tuple[float, float]
    aspect: tuple[float, float]
    jitter: bool
    mirrors: bool

    def __call__(self, image: Pixels, random: TransformRandom) -> Pixels:
        width, height = self._crop_size(image, random)
        free = image.shape[1] - width, image.shape[0] - height
        if self.kind == "center":
            left, top = free[0] // 2, free[1] // 2
        elif self.kind == "multiview10":
            left, top = 0, 0  # the first view is the only one that CNTK 2.7 produces
        else:
            left, top = (random.integer(n + 1) for n in free)
        part = image[top : top + height, left : left + width]
        return mirrored(part) if self.mirrors and random.uniform(0, 1) < 0.5 else part

    def _crop_size(self, image: Pixels, random: TransformRandom) -> tuple[int, int]:
        """Width and height."""
        rows, columns = image.shape[:2]
        if min(self.size) > 0:
            return min(self.size[0], columns), min(self.size[-1], rows)
        if self.side[0] > 0 or self.area[0] > 0:
            for _ in range(_MAX_ATTEMPTS):
                side, ratio = self._random_size(rows, columns, random)
                if side * ratio < columns + 1 and side / ratio < rows + 1:
                    return max(int(side * ratio), 1), max(int(side / ratio), 1)
        return columns, rows

    def _random_size(self, rows: int, columns: int, random: TransformRandom) -> tuple[int, float]:
        """Geometric mean of width and height, and the square root of their ratio."""
        if self.side[0] > 0:
            exact = min(rows, columns) * self._choose(self.side, random)
        else:
            exact = np.sqrt(rows * columns * self._choose(self.area, random))
        ratio = np.sqrt(self._choose(self.aspect, random))
        if ratio != 1 and random.integer(2):
            ratio = 1 / ratio
        return int(exact + 0.5), ratio

    def _choose(self, bounds: tuple[float, float], random: TransformRandom) -> float:
        return random.uniform(*bounds) if self.jitter and bounds[0] < bounds[1] else bounds[0]


def _crop(description: Mapping[str, Any]) -> Transform:
    kind, jitter = description["cropType"].lower(), description["jitterType"].lower()
    kinds, jitters = ("center", "randomside", "randomarea", "multiview10"), ("none", "uniratio")
    if kind not in kinds:
        raise RuntimeError(f"Invalid crop type: {description['cropType']}. Use one of {', '.join(kinds)}")
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
        raise RuntimeError("sideRatio and areaRatio cannot be specified simultaneously; leave out one of them")
    if jitter not in jitters:
        raise RuntimeError(f"Invalid jitter type: {description['jitterType']}. Use one of {', '.join(jitters)}")
    mirrors = description.get("hflip", kind.startswith("random"))
    return _Crop(kind, size, side, area, aspect, jitter == "uniratio", mirrors)


def _range(description: Mapping[str, Any], key: str) -> tuple[float, float]:
    low, _, high = description[key].partition(":")
    return float(np.float32(low)), float(np.float32(high or low))  # single precision decides how sizes are rounded


# ---- scaling
def _scale(description: Mapping[str, Any]) -> Transform:
    kind = description["interpolations"].lower()
    mode, pad = description["scaleMode"], int(description["padValue"])
    width, height = int(description["width"]), int(description["height"])
    if kind not in KINDS:
        raise RuntimeError("Invalid interpolations value, must be nearest, cubic, lanczos or linear")
    if mode not in ("fill", "crop", "pad"):
        raise RuntimeError("Invalid scaleMode value, must be fill, crop or pad (all lower case)")

    def scale(image: Pixels, _: TransformRandom) -> Pixels:
        if mode == "fill":
            return resized(image, height, width, kind)
        inner_rows, inner_columns = _inner_size(image.shape[:2], height, width, crops=mode == "crop")
        inner = resized(image, inner_rows, inner_columns, kind)
        top, left = abs(inner.shape[0] - height) // 2, abs(inner.shape[1] - width) // 2
        if mode == "crop":
            return inner[top : top + height, left : left + width]
        around = (top, height - inner.shape[0] - top), (left, width - inner.shape[1] - left), (0, 0)
        if pad < 0:
            return np.pad(inner, around, mode="edge")
        return np.pad(inner, around, constant_values=np.asarray(pad).astype(inner.dtype))

    return scale


def _inner_size(size: tuple[int, ...], height: int, width: int, crops: bool) -> tuple[int, int]:
    """The size to which an image is scaled before it is cropped or padded to height and width."""
    rows, columns = size
    by_height = height, max(int(columns * height / rows + 0.5), 1)
    by_width = max(int(rows * width / columns + 0.5), 1), width
    # As CNTK, which looks at the image only; where that leaves too much to pad or crop, CNTK fails.
    first, second = (by_height, by_width) if (rows > columns) != crops else (by_width, by_height)
    fits = (first[0] >= height and first[1] >= width) if crops else (first[0] <= height and first[1] <= width)
    return first if fits else second


# ---- values
def mean_image(path: str) -> Pixels:
    """Read the mean image from an OpenCV XML file: Channel, Row, Col and MeanImg, its values pixel by pixel.

    Shapes: float32 [height, width, channels].
    Errors: RuntimeError if it cannot be read.
    """
    root = _xml(path)
    try:
        shape = tuple(int(root.findtext(key, "")) for key in ("Row", "Col", "Channel"))
        return _matrix(root, "MeanImg").reshape(shape)
    except ValueError as error:
        raise RuntimeError(f"Could not open file: {path} ({error})") from error


def _xml(path: str) -> Element:
    """The content of an OpenCV XML file. Errors: RuntimeError if it cannot be read."""
    import xml.etree.ElementTree as ElementTree  # loaded late: it would slow down the import of the package

    try:
        with open_binary(path) as file:
            return ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise RuntimeError(f"Could not open file: {path} ({error})") from error


def _matrix(root: Element, name: str) -> np.ndarray:
    """The numbers of a matrix. Errors: ValueError if some are none."""
    return np.array(root.findtext(f"{name}/data", "").split(), np.float32)


def _mean(description: Mapping[str, Any]) -> Transform:
    path = description["meanFile"]
    return partial(_subtract_mean, mean_image(path), path)


def _subtract_mean(mean: Pixels, path: str, image: Pixels, _: TransformRandom) -> Pixels:
    if mean.shape != image.shape:
        warn(
            f"the mean image {path!r} is not subtracted: its shape [height, width, channels] is {mean.shape}, that of "
            f"the image is {image.shape}; scale images to the size of the mean image first",
        )
        return image
    return image.astype(np.float32) - mean


def _color(description: Mapping[str, Any]) -> Transform:
    keys = "brightnessRadius", "contrastRadius", "saturationRadius"
    brightness, contrast, saturation = (float(description[key]) for key in keys)
    if not (brightness or contrast or saturation):
        return lambda image, _: image  # whole numbers, which scaling rounds

    def color(image: Pixels, random: TransformRandom) -> Pixels:
        pixels = image.astype(np.float32)
        if brightness or contrast:
            offset = random.uniform(-brightness, brightness) if brightness else 0
            gain = 1 + random.uniform(-contrast, contrast) if contrast else 1
            pixels = np.clip(pixels * np.float32(gain) + pixels.mean() * np.float32(offset), 0, 255)
        if saturation and pixels.shape[2] == 3:
            brightest = pixels.max(2, keepdims=True)
            chroma = brightest - pixels
            largest = np.abs(brightest) / np.maximum(chroma.max(2, keepdims=True), 1e-6)  # leaves a channel of 0
            scale = np.minimum(np.float32(1 + random.uniform(-saturation, saturation)), largest)
            pixels = brightest - np.sign(brightest) * chroma * scale  # less than 0 after the mean was subtracted
        return pixels

    return color


def _intensity(description: Mapping[str, Any]) -> Transform:
    """Jitter along the principal axes of colors, which a file has in the order red, green, blue.

    Source: Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep convolutional neural networks" (2012),
    section 4.1.
    """
    deviation = float(description.get("intensityStdDev", 0))
    if not deviation or not description.get("intensityFile"):
        return lambda image, _: image
    path = description["intensityFile"]
    root = _xml(path)
    values, vectors = (_axes(root, name, size, path) for name, size in (("EigVal", 3), ("EigVec", 9)))

    def intensity(image: Pixels, random: TransformRandom) -> Pixels:
        if image.shape[2] != 3:
            return image
        alpha = np.array([random.normal() for _ in range(3)], np.float32)
        shift = vectors.reshape(3, 3) @ (np.float32(deviation) * alpha * values)
        return np.clip(image.astype(np.float32) + shift[::-1], 0, 255)

    return intensity


def _axes(root: Element, name: str, size: int, path: str) -> np.ndarray:
    try:
        numbers = _matrix(root, name)
    except ValueError:
        numbers = np.zeros(0)
    if numbers.size != size:
        raise RuntimeError(f"Invalid {name} data in file: {path}: it has to be {size} numbers")
    return numbers


def _transpose(description: Mapping[str, Any]) -> Transform:
    return lambda image, _: image.transpose(2, 0, 1)


_FACTORIES: dict[str, Callable[[Mapping[str, Any]], Transform]] = {
    "Crop": _crop, "Scale": _scale, "Mean": _mean, "Color": _color, "Intensity": _intensity,
    "Transpose": _transpose,
}

__all__ = ["Transform", "TransformRandom", "as_transform", "mean_image"]
