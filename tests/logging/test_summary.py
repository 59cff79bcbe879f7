"""Sizes and costs of layers, counted by hand."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax.logging import summary


def layer(model, operation):
    return next(layer for layer in summary(model).layers if layer.operation == operation)


def test_an_image_network():
    x = C.input_variable((1, 28, 28))
    model = C.layers.Sequential([
        C.layers.Convolution2D((3, 3), 4, activation=C.relu, pad=True, name="c"),
        C.layers.MaxPooling((2, 2), strides=(2, 2)), C.layers.Dense(10)])(x)
    result = summary(model)
    convolution, pooling, dense = result.layers
    numbers = 4 * 28 * 28
    assert (convolution.name, convolution.operation, convolution.output) == ("c", "Convolution", "[#] [4 x 28 x 28]")
    assert convolution.parameters == 4 * 9 + 4
    assert convolution.flops == 2 * 9 * numbers + numbers + numbers  # products, bias, relu
    assert convolution.memory == 3 * 4 * numbers
    assert (pooling.parameters, pooling.flops) == (0, 4 * 4 * 14 * 14)
    assert dense.flops == 2 * 4 * 14 * 14 * 10 + 10
    assert result.trained == 40 + 4 * 14 * 14 * 10 + 10 == sum(np.prod(p.shape) for p in model.parameters)
    assert result.flops == convolution.flops + pooling.flops + dense.flops
    assert result.parameter_memory == 4 * result.trained


def test_a_transposed_convolution_multiplies_each_number_it_reads():
    model = C.layers.ConvolutionTranspose2D((3, 3), 4, bias=False)(C.input_variable((2, 5, 5)))
    assert layer(model, "ConvolutionTranspose").flops == 2 * (4 * 9) * (2 * 5 * 5)


def test_a_recurrent_network_is_counted_for_one_step():
    x = C.sequence.input_variable(5)
    model = C.layers.Recurrence(C.layers.RNNStep(3, activation=C.tanh))(x)
    step = layer(model, "RNNStep")
    assert step.output == "[#,*] [3]"
    assert step.flops == 2 * 5 * 3 + 2 * 3 * 3 + 3 + 3 + 3  # W x, H h, two additions, tanh
    assert step.parameters == 5 * 3 + 3 * 3 + 3


def test_a_shared_parameter_is_counted_once():
    shared = C.layers.Dense(3)
    model = shared(shared(C.input_variable(3)))
    result = summary(model)
    assert [layer.parameters for layer in result.layers] == [12, 0] and result.trained == 12


def test_double_precision_takes_twice_the_memory():
    x = C.input_variable(3, dtype=np.float64)
    assert layer(C.tanh(x), "Tanh").memory == 24


def test_unknown_shapes_are_shown():
    result = summary(C.layers.Dense(3))
    assert (result.trained, result.flops, result.memory) == (None, None, None)
    assert "?" in str(result).splitlines()[4]


@pytest.mark.parametrize("text", ["Parameters: 8 trained, 0 constant, 32 B", "Forward pass of a sample: 14 FLOPs"])
def test_totals_are_below_both_tables(text):
    result = summary(C.layers.Dense(2)(C.input_variable(3)))
    assert text in str(result) and text in result._repr_html_()


def test_cells_of_html_are_escaped():
    assert ">a&lt;b</td>" in summary(C.tanh(C.input_variable(1), name="a<b"))._repr_html_()


def test_without_names_there_is_no_column_of_them():
    x = C.input_variable(3)
    nameless, named = summary(C.layers.Dense(2)(x)), summary(C.layers.Dense(2, name="h")(x))
    for text in (str, lambda result: result._repr_html_()):
        assert "Layer" not in text(nameless) and "Operation" in text(nameless)
        assert "Layer" in text(named)
    assert "<td style=\"text-align: left\">Dense</td>" in nameless._repr_html_()
