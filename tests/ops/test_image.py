"""Convolution, pooling and batch normalization against loops in NumPy, and against numbers recorded from CNTK 2.7."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import cntkjax as C
from benchmarks.tracing import trace_for
from tests.primitives.windows import normal


def test_a_chain_of_image_operations_keeps_channels_last():
    """Between the input and the last product nothing the size of an image is transposed back."""
    x = C.input_variable((3, 8, 8))
    weights = [C.constant(normal(*s).astype(np.float32)) for s in ((4, 3, 3, 3), (4, 4, 3, 3), (4, 1, 1))]
    ones = [C.constant(np.ones(4, np.float32)) for _ in range(4)]
    first = C.convolution(weights[0], x, auto_padding=[False, True, True]) + weights[2]
    normed = C.relu(C.batch_normalization(first, *ones, True, running_count=C.constant(0, ())))
    second = C.relu(C.convolution(weights[1], normed, auto_padding=[False, True, True]) + normed)
    f = C.reduce_sum(C.pooling(second, C.MAX_POOLING, (2, 2), (2, 2)))
    device = SingleDeviceSharding(jax.devices("cpu")[0])
    traced = trace_for("cpu", device, lambda: f.eval({x: np.zeros((5, 3, 8, 8), np.float32)})).traced
    text = traced.lower().as_text()
    moved = [line for line in text.splitlines() if "stablehlo.transpose" in line and "tensor<" in line]
    of_images = [line for line in moved if re.search(r"-> tensor<5x\d+x\d+x\d+xf32>", line)]
    assert len(of_images) == 2, of_images  # the input to channels last, and the pooled image back


@pytest.mark.parametrize(("op", "reason"), [
    (lambda x: C.pooling(x, C.MAX_POOLING, (0, 2)), "the window (0, 2) has to have sizes of at least 1"),
    (lambda x: C.pooling(x, C.AVG_POOLING, (2, 2), strides=(0, 1)), "the strides (1, 0, 1) have to be positive"),
    (lambda x: C.unpooling(x, x, C.MAX_UNPOOLING, (0, 2)), "the window (0, 2)"),
    (lambda x: C.roipooling(x, C.input_variable((2, 4)), C.MAX_POOLING, (0, 2), 1.0), "output shape (0, 2)"),
    (lambda x: C.convolution(np.ones((2, 3, 0, 3), np.float32), x), "the kernel has an axis of size 0"),
    (lambda x: C.convolution_transpose(np.ones((3, 2, 3, 0), np.float32), x), "the kernel has an axis of size 0"),
    (lambda x: C.convolution(np.ones((2, 3, 3, 3), np.float32), x, groups=0), "groups = 0"),
    (lambda x: C.depth_to_space(x, 0), "block_size = 0"),
    (lambda x: C.space_to_depth(x, 0), "block_size = 0"),
])
def test_sizes_of_0_are_errors_when_the_operation_is_made(op, reason):
    with pytest.raises(ValueError) as raised:
        op(C.input_variable((3, 8, 8)))
    assert reason in str(raised.value)


@pytest.mark.parametrize("operation", [
    lambda x: C.pooling(x, C.MAX_POOLING, (1, 2), (1, 2)),
    lambda x: C.convolution(C.constant(1, (2, 3, 1, 2)), x, auto_padding=[False]),
    lambda x: C.convolution_transpose(C.constant(1, (3, 2, 1, 2)), x, auto_padding=[False]),
    lambda x: C.layers.BatchNormalization(map_rank=1)(x),
])
@pytest.mark.parametrize("sequence", [False, True])
def test_sparse_images_compute_what_dense_ones_do(operation, sequence):
    x = (C.sequence.input_variable if sequence else C.input_variable)((2, 2))
    images = np.array([[[0, 1], [2, 0]], [[2, 2], [1, 0]], [[1, 0], [0, 2]]])
    data = [images, images[:1]] if sequence else images
    sparse, dense = (operation(C.one_hot(x, 3, sparse_output=kind, axis=0)).eval({x: data}) for kind in (True, False))
    for a, b in zip(sparse, dense, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_strides_as_large_as_the_channels_leave_one_position_along_them(groups):
    """As in CNTK 2.7, where the channels are padded otherwise, and groups of them are not computed."""
    x, images = C.input_variable((4, 5, 5)), normal(1, 4, 5, 5).astype(np.float32)
    kernel = C.constant(normal(4, 4 // groups, 3, 3).astype(np.float32))
    strided = C.convolution(kernel, x, strides=(4, 1, 1), groups=groups)
    assert strided.shape == (4, 5, 5)
    expected = C.convolution(kernel, x, auto_padding=[False, True, True], groups=groups)
    np.testing.assert_allclose(strided.eval({x: images}), expected.eval({x: images}), rtol=1e-5)
