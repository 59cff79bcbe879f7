"""What is done to images between the file and the network, to be listed in ``StreamDef(transforms=[...])``."""

from __future__ import annotations

from typing import Any

Range = float | tuple[float, float]


def crop(
    crop_type: str = "center",
    crop_size: int | tuple[int, int] = 0,
    side_ratio: Range = 0.0,
    area_ratio: Range = 0.0,
    aspect_ratio: Range = 1.0,
    jitter_type: str = "none",
) -> dict[str, Any]:
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
    return {
        "type": "Crop",
        "cropType": crop_type,
        "cropSize": _pair(crop_size) if not isinstance(crop_size, tuple) else ":".join(map(str, crop_size)),
        "sideRatio": _pair(side_ratio),
        "areaRatio": _pair(area_ratio),
        "aspectRatio": _pair(aspect_ratio),
        "jitterType": jitter_type,
    }


def scale(
    width: int,
    height: int,
    channels: int,
    interpolations: str = "linear",
    scale_mode: str = "fill",
    pad_value: int = -1,
) -> dict[str, Any]:
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
    return {
        "type": "Scale",
        "width": width,
        "height": height,
        "channels": channels,
        "interpolations": interpolations,
        "scaleMode": scale_mode,
        "padValue": pad_value,
    }


def mean(filename: str) -> dict[str, Any]:
    """Subtracts a mean image.

    Args:
        filename: an OpenCV XML file with it

    Example:
        >>> mean("mean.xml")
        {'type': 'Mean', 'meanFile': 'mean.xml'}
    """
    return {"type": "Mean", "meanFile": filename}


def color(
    brightness_radius: float = 0.0, contrast_radius: float = 0.0, saturation_radius: float = 0.0
) -> dict[str, Any]:
    """Varies colours at random, by factors from ``1 - radius`` to ``1 + radius``.

    Example:
        >>> color(contrast_radius=0.5)["contrastRadius"]
        0.5
    """
    return {
        "type": "Color",
        "brightnessRadius": brightness_radius,
        "contrastRadius": contrast_radius,
        "saturationRadius": saturation_radius,
    }


def _pair(value: Range) -> str:
    """A number or range as 'low:high'."""
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"crop: {value!r} has to be a number or a tuple of two numbers, the smaller one first")
    return ":".join(f"{number:g}" for number in pair)
