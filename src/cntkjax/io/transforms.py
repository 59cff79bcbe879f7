"""Image transforms, for ``StreamDef(transforms=[...])`` or to be called with an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._typing import FileName
from ..graph.arguments import public
from ._image_transforms import TransformRandom, as_transform

Range = float | tuple[float, float]


@public
class ImageTransform(dict[str, Any]):
    """Description of a transform for an image deserializer; calling it applies the transform to an array.

    >>> scale(4, 2, 3)(np.full((8, 8, 3), 7, np.uint8)).shape
    (2, 4, 3)
    """

    def __call__(self, image: np.ndarray, seed: int | None = None) -> np.ndarray:
        """Apply the transform to an image.

        Args:
            image: uint8 or float32, channels in the order blue, green, red
            seed: seed of the random numbers; None: a new one for each call

        Shapes: [height, width, channels] -> [height, width, channels]; networks take `image.transpose(2, 0, 1)`.
        Units: intensities are 0 to 255.
        Errors: ValueError for an array that is no such image; RuntimeError for invalid options.
        """
        image = np.asarray(image)
        if image.ndim != 3 or image.dtype not in (np.uint8, np.float32):
            raise ValueError(
                f"{self['type']}: an image is uint8 or float32 [height, width, channels], not {image.dtype} "
                f"{list(image.shape)}"
            )
        return as_transform(self)(image, TransformRandom(seed))


@public
def crop(
    crop_type: str = "center",
    crop_size: int | tuple[int, int] = 0,
    side_ratio: Range = 0.0,
    area_ratio: Range = 0.0,
    aspect_ratio: Range = 1.0,
    jitter_type: str = "none",
) -> ImageTransform:
    """Crop images.

    Args:
        crop_type: 'center', 'randomside', 'randomarea' or 'multiview10' (corners and centre, each also mirrored); half
            of the random crops are mirrored
        crop_size: width and height in pixels, or one number for both; 0: the ratios apply
        side_ratio: ratio of the side of the crop to the shorter side of the image, or a range (low, high)
        area_ratio: ratio of the area of the crop to that of the image, or a range (low, high)
        aspect_ratio: ratio of width to height, or a range (low, high)
        jitter_type: how ratios are chosen: 'uniratio' uniformly from their ranges, 'none' always the lowest

    Errors: ValueError for a range that is no pair of ascending numbers. Reading raises RuntimeError for other options.

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


@public
def scale(
    width: int,
    height: int,
    channels: int,
    interpolations: str = "linear",
    scale_mode: str = "fill",
    pad_value: int = -1,
) -> ImageTransform:
    """Resize images.

    Args:
        width: new width in pixels
        height: new height in pixels
        channels: 3, or 1 to read images as greyscale
        interpolations: 'nearest', 'linear', 'cubic' or 'lanczos'
        scale_mode: 'fill' stretches the image, 'crop' preserves the aspect ratio and crops, 'pad' preserves it and pads
        pad_value: intensity of the padding, 0 to 255; -1: that of the nearest pixel

    Errors: reading raises RuntimeError for other options.

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


@public
def mean(filename: FileName) -> ImageTransform:
    """Subtract a mean image. Images of another size are left unchanged, with a warning.

    Args:
        filename: OpenCV XML file with the mean image

    Errors: reading raises RuntimeError if the file cannot be read.

    >>> mean("mean.xml")
    {'type': 'Mean', 'meanFile': 'mean.xml'}
    """
    return ImageTransform({"type": "Mean", "meanFile": filename})


@public
def color(
    brightness_radius: float = 0.0, contrast_radius: float = 0.0, saturation_radius: float = 0.0
) -> ImageTransform:
    """Jitter colours at random.

    Args:
        brightness_radius: adds up to this fraction of the mean intensity, or subtracts it
        contrast_radius: scales intensities by a factor from ``1 - radius`` to ``1 + radius``
        saturation_radius: scales the differences between channels by a factor from ``1 - radius`` to ``1 + radius``

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
    """A number or range, formatted as 'low:high'."""
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"crop: {value!r} has to be a number or a tuple of two numbers, the smaller one first")
    return ":".join(f"{number:g}" for number in pair)




__all__ = ["ImageTransform", "Range", "color", "crop", "mean", "scale"]
