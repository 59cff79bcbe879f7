"""Decoding images. Needs Pillow; OpenCV, if it is installed, decodes faster, to the same pixels."""

from __future__ import annotations

import io
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ._resize import Pixels, opencv

if TYPE_CHECKING:
    from PIL.Image import Image


_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}  # the formats that OpenCV decodes, and how their files end


def pillow() -> ModuleType:
    """Pillow's module of images. Errors: ImportError that says how to install it."""
    try:
        from PIL import Image  # loaded late, as it is optional
    except ImportError as missing:
        raise ImportError("reading images needs Pillow: pip install 'cntkjax[images]'") from missing
    return Image


def decoded(encoded: bytes, channels: int, max_pixels: int, is_oriented: bool) -> Pixels:
    """An image.

    Args:
        encoded: the content of a file
        channels: 1 for gray levels, otherwise colors in the order blue, green, red
        max_pixels: larger images are not decoded
        is_oriented: whether a photograph is turned as its camera noted. CNTK turns those that are files, but not those
            in archives or lists

    Shapes: uint8 [height, width, channels].
    Errors: whatever damaged data lead the decoder to; ValueError for an image that is too large.
    """
    with pillow().open(io.BytesIO(encoded)) as image:
        if image.width * image.height > max_pixels:
            raise ValueError(
                f"it has {image.width} x {image.height} pixels, more than {max_pixels}; scale it down, or set "
                "max_pixels of the deserializer"
            )
        is_oriented &= image.format == "JPEG"
        # Of a file that was cut, OpenCV decodes what there is; Pillow refuses it.
        end = _ENDS.get(image.format or "")
        if opencv() is None or end is None or encoded.rfind(end, len(encoded) // 2) < 0:
            return _by_pillow(image, channels, is_oriented)
    return _by_opencv(encoded, channels, is_oriented)


def _by_pillow(image: Image, channels: int, is_oriented: bool) -> Pixels:
    if is_oriented:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if channels == 1:
        return np.asarray(image.convert("L"))[:, :, None]
    return np.asarray(image.convert("RGB"))[:, :, ::-1]


def _by_opencv(encoded: bytes, channels: int, is_oriented: bool) -> Pixels:
    cv2 = opencv()
    assert cv2 is not None
    flags = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
    flags |= 0 if is_oriented else cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    if pixels is None:
        raise ValueError("it is damaged, or of a format that OpenCV cannot read")
    return pixels[:, :, None] if channels == 1 else pixels
