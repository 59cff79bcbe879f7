"""What is done to images between file and network: in ``StreamDef(transforms=[...])``, or called on an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._pixels import Draws, transform_of

Range = float | tuple[float, float]


class ImageTransform(dict[str, Any]):
    """A transform as readers are told of it; calling it does to an array what a reader does to an image.

    Example:
        >>> scale(4, 2, 3)(np.full((8, 8, 3), 7, np.uint8)).shape
        (2, 4, 3)
    """

    def __call__(self, image: np.ndarray, seed: int | None = None) -> np.ndarray:
        """The image after it.

        Args:
            image: uint8 or float32 [height, width, channels], colours in the order blue, green, red, as readers have it
            seed: of what is drawn at random; None: another one each time

        Shapes: [height, width, channels] -> likewise; a network takes `image.transpose(2, 0, 1)`.
        Errors: ValueError for an array that is no such image; RuntimeError for options without meaning.
        """
        image = np.asarray(image)
        if image.ndim != 3 or image.dtype not in (np.uint8, np.float32):
            raise ValueError(
                f"{self['type']}: an image is uint8 or float32 [height, width, channels], not {image.dtype} "
                f"{list(image.shape)}"
            )
        return transform_of(self)(image, Draws(seed))


def crop(
    crop_type: str = "center",
    crop_size: int | tuple[int, int] = 0,
    side_ratio: Range = 0.0,
    area_ratio: Range = 0.0,
    aspect_ratio: Range = 1.0,
    jitter_type: str = "none",
) -> ImageTransform:
    """Cuts out a part.

    Args:
        crop_type: 'center', 'randomside', 'randomarea' or 'multiview10' (corners and centre, each also mirrored)
        crop_size: width and height in pixels, or one number for both
        side_ratio: of the side of the cut to the shorter side, or a range of them
        area_ratio: of the area of the cut to that of the image, or a range of them
        aspect_ratio: of width to height, or a range of them
        jitter_type: how a ratio is chosen from its range: 'none' or 'uniratio'

    Errors: ValueError for a range that is no pair of ascending numbers.

    Example:
        >>> crop("randomside", side_ratio=(0.5, 1))["sideRatio"]
        '0.5:1'
    """
    return ImageTransform({
        "type": "Crop",
        "cropType": crop_type,
        "cropSize": _pair(crop_size) if not isinstance(crop_size, tuple) else ":".join(map(str, crop_size)),
        "sideRatio": _pair(side_ratio),
        "areaRatio": _pair(area_ratio),
        "aspectRatio": _pair(aspect_ratio),
        "jitterType": jitter_type,
    })


def scale(
    width: int,
    height: int,
    channels: int,
    interpolations: str = "linear",
    scale_mode: str = "fill",
    pad_value: int = -1,
) -> ImageTransform:
    """Brings images to one size.

    Args:
        width: pixels of a row
        height: number of rows
        channels: number of colours
        interpolations: 'nearest', 'linear', 'cubic' or 'lanczos'
        scale_mode: 'fill' warps, 'crop' keeps the proportions and cuts, 'pad' keeps them and fills up
        pad_value: what is filled in; -1: the nearest pixel

    Example:
        >>> scale(32, 24, 3)["height"]
        24
    """
    return ImageTransform({
        "type": "Scale",
        "width": width,
        "height": height,
        "channels": channels,
        "interpolations": interpolations,
        "scaleMode": scale_mode,
        "padValue": pad_value,
    })


def mean(filename: str) -> ImageTransform:
    """Subtracts a mean image.

    Args:
        filename: an OpenCV XML file with it

    Example:
        >>> mean("mean.xml")
        {'type': 'Mean', 'meanFile': 'mean.xml'}
    """
    return ImageTransform({"type": "Mean", "meanFile": filename})


def color(
    brightness_radius: float = 0.0, contrast_radius: float = 0.0, saturation_radius: float = 0.0
) -> ImageTransform:
    """Varies colours at random, by factors from ``1 - radius`` to ``1 + radius``.

    Example:
        >>> color(contrast_radius=0.5)["contrastRadius"]
        0.5
    """
    return ImageTransform({
        "type": "Color",
        "brightnessRadius": brightness_radius,
        "contrastRadius": contrast_radius,
        "saturationRadius": saturation_radius,
    })


def _pair(value: Range) -> str:
    """A number or range as 'low:high'."""
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"crop: {value!r} has to be a number or a tuple of two numbers, the smaller one first")
    return ":".join(f"{number:g}" for number in pair)
