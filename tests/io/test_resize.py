"""Resizing and mirroring, with OpenCV and without it."""

import numpy as np
import pytest

from cntkjax.io import _resize


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 3])
def test_planes_and_mirrored_columns_are_the_same_with_and_without_opencv(dtype, channels, monkeypatch):
    image = np.arange(5 * 8 * channels).reshape(5, 8, channels).astype(dtype)[:, 1:7]
    planes = np.zeros((2, channels, 5, 6), np.float32)
    _resize.store_planes(_resize.mirrored(image), planes[0])
    monkeypatch.setattr(_resize, "opencv", lambda: None)
    _resize.store_planes(_resize.mirrored(image), planes[1])
    np.testing.assert_array_equal(planes[0], planes[1])
    np.testing.assert_array_equal(planes[1], image[:, ::-1].transpose(2, 0, 1))
