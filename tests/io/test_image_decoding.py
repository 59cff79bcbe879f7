"""Decoding images: the size in a header is read before anything is decoded."""

import io

import numpy as np
import pytest

from cntkjax.io import _image_decoding

Image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
PIXELS = np.random.RandomState(0).randint(0, 256, (9, 13, 3)).astype("uint8")  # red, green, blue


@pytest.mark.parametrize("options", [
    {"format": "PNG"}, {"format": "JPEG"}, {"format": "JPEG", "progressive": True},
    {"format": "JPEG", "exif": b"x" * 500},
], ids=["PNG", "JPEG", "progressive", "with metadata"])
def test_the_size_in_a_header_is_read_before_anything_is_decoded(options):
    encoded = io.BytesIO()
    Image.fromarray(PIXELS).save(encoded, **options)
    header = _image_decoding._header(encoded.getvalue())
    assert header is not None and (header.width, header.height) == (13, 9)
    assert header.is_jpeg == (options["format"] == "JPEG") and header.end in encoded.getvalue()[-20:]


@pytest.mark.parametrize("encoded", [b"", b"\xff\xd8", b"\xff\xd8" + b"\xff" * 50, b"\xff\xd8\xff\xda" + bytes(50),
                                     b"\x89PNG\r\n\x1a\n" + bytes(50), b"BM" + bytes(50)])
def test_what_is_no_header_is_left_to_pillow(encoded):
    assert _image_decoding._header(encoded) is None
