"""Convolutions: along sequences, and without channels."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L

S = C.sequence
image = C.input_variable((3, 8, 8))


def test_convolution_along_a_sequence_slides_over_its_steps():
    operand = S.input_variable(2)
    data = [np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32) for n in (4, 6)]
    for layer in (L.Convolution(3, 5, sequential=True, init_bias=1), L.SequentialConvolution(3, 5, init_bias=1)):
        f = layer(operand)
        W = f.parameters[0].value  # [5, 2, 3]
        expected = [np.stack([np.einsum("fct,tc->f", W, d[i : i + 3]) + 1 for i in range(len(d) - 2)]) for d in data]
        for value, expected_value in zip(f.eval({operand: data}), expected, strict=True):
            np.testing.assert_allclose(value, expected_value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [L.Convolution2D, L.SequentialConvolution])
def test_an_empty_shape_of_filters_is_one_filter(layer):
    of, shape = (image, (6, 6)) if layer is L.Convolution2D else (S.input_variable((2, 8)), (6,))
    assert layer((3, 3), ())(of).shape == shape


@pytest.mark.parametrize(("shape", "window", "options", "output"), [
    ((5,), (2, 2), {}, (4,)), ((5,), (2, 2), {"num_filters": 3, "pad": True}, (3, 15)),
    ((5,), (2, 2), {"num_filters": 3, "strides": 2}, (3, 6)), ((5,), (3, 3), {"num_filters": 3, "bias": False}, (9,)),
    ((4, 6), (2, 2, 2), {}, (3, 5)), ((4, 6), (2, 2, 2), {"num_filters": 3, "pad": True}, (3, 12, 6)),
])
def test_a_convolution_of_sequences_without_channels_has_the_shape_of_cntk_and_no_value(shape, window, options, output):
    """Shapes from CNTK 2.7, where the channels of W stay unknown too."""
    f = L.SequentialConvolution(window, reduction_rank=1, **options)(S.input_variable(shape))
    assert f.shape == output
    assert f.W.shape == (options.get("num_filters", 1), C.InferredDimension, *window)
    with pytest.raises(ValueError, match=r"(?s)'W'.*no value yet.*Fix: .*channels"):
        f.eval({f.arguments[0]: [np.ones((4, *shape), np.float32)]})


@pytest.mark.parametrize("layer", [L.Convolution, L.SequentialConvolution])
def test_convolutions_have_one_name_for_their_operation(layer):
    assert layer(3, 2, op_name="Other").root_function.op_name == "Convolution"


@pytest.mark.parametrize("strides", [1, 2])
def test_sequences_shorter_than_the_window_have_no_positions_and_gradients_of_zero(strides):
    x = S.input_variable(1, needs_gradient=True)
    f = L.SequentialConvolution(3, 2, pad=False, strides=strides, init=1)(x)
    for lengths in ([1, 1], [2, 1], [3, 1]):
        data = [np.ones((n, 1), np.float32) for n in lengths]
        assert [v.shape for v in f.eval({x: data})] == [(max(n - 2, 0), 2) for n in lengths]
        gradients = C.sequence.reduce_sum(C.reduce_sum(f)).grad({x: data})
        assert [g.ravel().tolist() for g in gradients] == [[2.0 if n > 2 else 0.0] * n for n in lengths]


def test_operations_take_sequences_that_are_all_shorter_than_a_window_before_them():
    x = S.input_variable(1, needs_gradient=True)
    short = L.SequentialConvolution(3, 2, pad=False, init=1)(x)
    data = [np.ones((n, 1), np.float32) for n in (1, 2)]
    window = C.combine(L.PastValueWindow(2, -2)(short).outputs)
    assert [v.shape for v in window.eval({x: data}).values()] == [(2, 2, 2), (2, 2, 1)]
    states = L.Recurrence(C.plus)(short)
    assert [v.shape for v in states.eval({x: data})] == [(0, 2), (0, 2)]
    assert not np.any(np.concatenate(S.reduce_sum(C.reduce_sum(states)).grad({x: data})))


@pytest.mark.parametrize("make", [L.Convolution2D, L.ConvolutionTranspose2D])
def test_one_size_is_that_of_each_axis_of_the_window(make):
    assert make((3,), 4)(image).parameters[0].shape[-2:] == make(3, 4)(image).parameters[0].shape[-2:] == (3, 3)
