"""Cropping: an image is aligned with the pixels of another one."""

import numpy as np
import pytest

import cntkjax as C

IMAGE = np.arange(144, dtype=np.float32).reshape(1, 1, 12, 12)


def corner(size):
    """A kernel that takes the first pixel of its window."""
    kernel = np.zeros((1, 1, size, size), np.float32)
    kernel[0, 0, 0, 0] = 1
    return kernel


def convolved(x, size, stride=1, padded=False):
    return C.convolution(corner(size), x, strides=(1, stride, stride), auto_padding=[False, padded, padded])


def pooled(x, size, stride):
    return C.pooling(x, C.AVG_POOLING, (size, size), (stride, stride))


def greatest(x):
    return C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2))


def spread(x, size, stride):
    return C.convolution_transpose(corner(size), x, strides=(1, stride, stride), auto_padding=[False])


@pytest.mark.parametrize(("image", "referent", "first"), [
    (lambda x: x, lambda x: convolved(x, 3), [13, 14, 25]),
    (lambda x: x, lambda x: convolved(x, 3, padded=True), [0, 1, 12]),
    (lambda x: x, lambda x: convolved(x, 4), [13, 14, 25]),
    (lambda x: x, lambda x: convolved(convolved(x, 3), 3), [26, 27, 38]),
    (lambda x: convolved(x, 3), lambda x: convolved(x, 5), [13, 14, 25]),
    (lambda x: spread(pooled(x, 2, 2), 4, 2), lambda x: convolved(x, 3), [32.5, 0, 0]),
    (lambda x: spread(pooled(x, 3, 2), 3, 2), lambda x: convolved(x, 5), [39, 0, 0]),
    (lambda x: pooled(x, 2, 2), lambda x: pooled(convolved(x, 5), 2, 2), [32.5, 34.5, 56.5]),
    (lambda x: C.relu(x) + 1, lambda x: convolved(x, 3), [14, 15, 26]),
    (lambda x: greatest(C.relu(x)), lambda x: pooled(convolved(x, 5), 2, 2), [39, 41, 63]),  # which are fused
], ids=range(10))
def test_crop_aligns_the_pixels(image, referent, first):
    x = C.input_variable((1, 12, 12))
    cropped = C.crop_automatic(image(x), referent(x)).eval({x: IMAGE})
    assert [cropped[0, 0, 0, 0], cropped[0, 0, 0, 1], cropped[0, 0, 1, 0]] == first


def test_crop_with_given_ancestors():
    x, y = C.input_variable((1, 12, 12)), C.input_variable((1, 12, 12))
    cropped = C.crop_automatic_with_ancestors(x, convolved(y, 3), x, y)
    assert cropped.eval({x: IMAGE, y: IMAGE})[0, 0, 0, 0] == 13


@pytest.mark.parametrize(("referent", "message"), [
    (lambda x: pooled(x, 2, 2), "not of the same size"), (lambda x: C.input_variable((1, 4, 4)), "no common ancestor"),
], ids=range(2))
def test_crop_without_alignment_is_an_error(referent, message):
    x = C.input_variable((1, 12, 12))
    cropped = C.crop_automatic(x, referent(x))
    with pytest.raises(ValueError, match=message):
        cropped.eval({v: np.zeros((1, *v.shape)) for v in cropped.arguments})
