"""Blocks of networks that MMdnn writes; the numbers of lrn are CNTK 2.7's."""

import numpy as np

import cntkjax as C
from cntkjax.contrib import crosstalkcaffe
from cntkjax.contrib.crosstalkcaffe.unimodel.cntkinstance import BlockApiSetup

RANDOM = np.random.RandomState(0)
IMAGE = RANDOM.standard_normal((1, 16, 3, 3)).astype(np.float32)


def test_the_package_has_the_converter():
    assert crosstalkcaffe.CaffeConverter is crosstalkcaffe.convert.CaffeConverter


def test_linear_is_a_product_and_a_bias():
    W, b = RANDOM.standard_normal((3, 2)).astype(np.float32), np.float32([1, 2])
    y = BlockApiSetup.linear(output_shape=2, input_shape=3, scale_init=W, bias_init=b, name="fc")(C.input_variable(3))
    assert [(p.name, p.shape) for p in y.parameters] == [("fc.sc", (3, 2)), ("fc.b", (2,))] and y.name == "fc"
    np.testing.assert_allclose(y.eval([[1, 2, 3]]), [np.float32([1, 2, 3]) @ W + b], rtol=1e-5)


def test_lrn():
    y = BlockApiSetup.lrn(k=1, n=3, alpha=0.3, beta=0.75, name="l")(C.input_variable((16, 3, 3)))
    expected = [1.5359995, 0.3570493, 0.25779706, -0.1718818, 1.1373897, -0.36333358]
    np.testing.assert_allclose(y.eval(IMAGE)[0, :6, 0, 0], expected, rtol=1e-5)


def test_convolution_in_groups():
    kernel, bias = RANDOM.standard_normal((4, 8, 3, 3)).astype(np.float32), np.arange(4, dtype=np.float32)
    x = C.input_variable((16, 3, 3))
    y = BlockApiSetup.convolution(output=4, kernel=[3, 3], stride=[1, 1], pad=[False, False], kernel_init=kernel,
                                  bias_init=bias, group=2, dilation=[1, 1], name="c")(x)
    halves = IMAGE[0].reshape(2, 8, 3, 3)
    expected = [np.sum(kernel[i] * halves[i // 2]) + i for i in range(4)]
    np.testing.assert_allclose(y.eval({x: IMAGE}).ravel(), expected, rtol=1e-4)


def test_dilation_may_include_the_filter_axis():
    kernel, x = C.constant(np.ones((4, 16, 3, 3), np.float32)), C.input_variable((16, 3, 3))
    y = C.convolution(kernel, x, dilation=(1, 1, 1, 1), auto_padding=[False, True, True])
    np.testing.assert_allclose(y.eval({x: IMAGE})[0, 0, 1, 1], IMAGE.sum(), rtol=1e-4)
