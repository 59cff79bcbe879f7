"""Decoding images. Needs Pillow; OpenCV, if it is installed, decodes faster, to the same pixels."""

from __future__ import annotations

import io
import struct
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ._resize import Pixels, opencv

if TYPE_CHECKING:
    from PIL.Image import Image


_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of the segment with the size in JPEG files


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
    header = None if opencv() is None else _header(encoded)
    # Of a file that was cut, OpenCV decodes what there is; Pillow refuses it.
    if header is not None and encoded.rfind(header.end, len(encoded) // 2) >= 0:
        _check_size(header.width, header.height, max_pixels)
        return _by_opencv(encoded, channels, is_oriented and header.is_jpeg)
    try:
        opened = pillow().open(io.BytesIO(encoded))
    except pillow().UnidentifiedImageError:  # its text is about a Python object
        raise ValueError("it is damaged, or no image of a format that Pillow reads") from None
    with opened as image:
        _check_size(image.width, image.height, max_pixels)
        return _by_pillow(image, channels, is_oriented and image.format == "JPEG")


class _Header(NamedTuple):
    """What the first bytes of a file say that OpenCV decodes. `end`: how such files end."""

    width: int
    height: int
    end: bytes
    is_jpeg: bool


def _header(encoded: bytes) -> _Header | None:
    """The header of a JPEG or PNG file; None for others, and if it is not in order."""
    if encoded.startswith(_PNG) and len(encoded) >= 24:
        width, height = struct.unpack_from(">II", encoded, 16)
        return _Header(width, height, b"IEND", False)
    place = 2 if encoded.startswith(b"\xff\xd8") else len(encoded)
    while place + 9 <= len(encoded) and encoded[place] == 0xFF:  # segments, each with a marker and its length
        marker, size, height, width = struct.unpack_from(">xBHxHH", encoded, place)
        if marker in _FRAMES:
            return _Header(width, height, b"\xff\xd9", True)
        if marker < 0xC0 or 0xD0 <= marker <= 0xDA or marker == 0xFF:  # not in a header
            return None
        place += 2 + size
    return None


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise ValueError(
            f"it has {width} x {height} pixels, more than {max_pixels}; scale it down, or set max_pixels of the "
            "deserializer"
        )


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
