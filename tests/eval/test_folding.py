"""Predictors fold batch normalization into products, and compute once what follows from parameters alone."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of

RNG = np.random.default_rng(3)


def number(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def normalized(x, dtype=np.float32, spatial=True):
    """Batch normalization with statistics of its own."""
    n = x.shape[0] if spatial else int(np.prod(x.shape))
    scale, bias = (C.parameter(n, init=number(n, dtype=dtype), dtype=dtype) for _ in range(2))
    mean, variance = (C.constant(a.astype(dtype), dtype=dtype) for a in (number(n), RNG.uniform(0.1, 3, n)))
    return C.batch_normalization(
        x, scale, bias, mean, variance, spatial=spatial, running_count=C.constant(5, dtype=dtype), epsilon=1e-5
    )


def operations(predictor):
    return [node.op_name for node in plan_of(predictor._frozen.outputs).nodes]


def dense(dtype):
    x = C.input_variable(5, dtype=dtype)
    return normalized(C.times(x, C.parameter((5, 4), init=number(5, 4, dtype=dtype), dtype=dtype)), dtype, False), 0


def layers(dtype):
    with C.default_options(dtype=dtype):
        x = C.input_variable((3, 6, 6), dtype=dtype)
        return normalized(C.layers.Convolution2D((3, 3), 4, pad=True, init_bias=0.5)(x), dtype), 0


def matrices(dtype):
    x = C.input_variable(5, dtype=dtype)
    return normalized(C.times(x, C.parameter((5, 4, 2), init=number(5, 4, 2, dtype=dtype), dtype=dtype), output_rank=2),
                      dtype), 0


def transposed(dtype):
    x = C.input_variable((3, 4, 4), dtype=dtype)
    kernel = C.parameter((3, 2, 3, 3), init=number(3, 2, 3, 3, dtype=dtype), dtype=dtype)
    return normalized(C.convolution_transpose(kernel, x, strides=(2, 2), auto_padding=[False, True, True]), dtype), 0


def groups(dtype):
    x = C.input_variable((4, 5, 5), dtype=dtype)
    kernel = C.parameter((6, 2, 3, 3), init=number(6, 2, 3, 3, dtype=dtype), dtype=dtype)
    return normalized(C.convolution(kernel, x, auto_padding=[False, True, True], groups=2), dtype), 0


def several(dtype):
    x = C.input_variable((3, 4, 4), dtype=dtype)
    kernel = C.parameter((2, 3, 3, 3), init=number(2, 3, 3, 3, dtype=dtype), dtype=dtype)
    y = C.convolution(kernel, x, auto_padding=[False, True, True])
    return normalized(normalized(normalized(y, dtype), dtype), dtype), 0


def windows_along_channels(dtype):
    x = C.input_variable((3, 4, 4), dtype=dtype)
    return normalized(C.convolution(C.parameter((2, 3, 3, 3), init=number(2, 3, 3, 3, dtype=dtype), dtype=dtype), x),
                      dtype), 1


def of_an_input(dtype):
    return normalized(C.input_variable((3, 4, 4), dtype=dtype), dtype), 1


def two_of_an_input(dtype):
    return normalized(normalized(C.input_variable((3, 4, 4), dtype=dtype), dtype), dtype), 1


def by_element_after_channels(dtype):
    x = C.input_variable((3, 4, 4), dtype=dtype)
    return normalized(normalized(x, dtype), dtype, spatial=False), 2


def read_twice(dtype):
    x = C.input_variable(5, dtype=dtype)
    y = C.times(x, C.parameter((5, 4), init=number(5, 4, dtype=dtype), dtype=dtype))
    return normalized(y, dtype) + C.relu(y), 1


def shared_weight(dtype):
    x = C.input_variable(4, dtype=dtype)
    w = C.parameter((4, 4), init=number(4, 4, dtype=dtype), dtype=dtype)
    return normalized(C.times(C.tanh(normalized(C.times(x, w), dtype)), w), dtype) + C.times(x, w), 0


def mapped_channels(dtype):
    x = C.input_variable((3, 5), dtype=dtype)
    return normalized(C.times(x, C.parameter((5, 4), init=number(5, 4, dtype=dtype), dtype=dtype)), dtype), 1


def infinite_factor(dtype):
    x = C.input_variable(2, dtype=dtype)
    y = C.times(x, C.parameter((2, 2), init=1, dtype=dtype))
    return C.batch_normalization(y, *(C.constant(v, (2,), dtype=dtype) for v in (np.inf, 0, 0, 0)), spatial=True,
                                 running_count=C.constant(5, dtype=dtype)), 1


GRAPHS = [
    dense, layers, matrices, transposed, groups, several, windows_along_channels, of_an_input, two_of_an_input,
    by_element_after_channels, read_twice, shared_weight, mapped_channels, infinite_factor,
]


@pytest.mark.parametrize("graph, dtype", [
    *((graph, np.float32) for graph in GRAPHS), (dense, np.float64), (layers, np.float64),
])
def test_folded_graphs_answer_as_eval(graph, dtype):
    f, left = graph(dtype)
    batch = number(3, *f.arguments[0].shape, dtype=dtype)
    before = {p: p.value.copy() for p in (*f.parameters, *f.constants)}
    expected = f.eval(batch)
    predict = C.Predictor(f)
    answer = predict(batch)
    assert operations(predict).count("BatchNormalization") == left
    assert answer.dtype == dtype
    tolerance = 3e-6 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(answer, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    for leaf, value in before.items():
        np.testing.assert_array_equal(leaf.value, value)
    np.testing.assert_array_equal(f.eval(batch), expected)


def test_normalization_in_sequences_and_loops_is_folded():
    x, state = C.sequence.input_variable(4), C.placeholder(4)
    w = C.parameter((4, 4), init=number(4, 4) / 4)
    after = C.tanh(normalized(C.times(C.sequence.past_value(state), w), spatial=False) + x)
    f = normalized(C.times(after.replace_placeholders({state: after.output}), w), spatial=False)
    batch = [number(n, 4) for n in (5, 2, 7)]
    predict = C.Predictor(f)
    for answer, expected in zip(predict(batch), f.eval(batch), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=3e-6, atol=3e-6 * np.abs(expected).max())
    assert "BatchNormalization" not in operations(predict)


def test_normalization_that_is_asked_for_with_its_operand_keeps_both():
    f, _ = dense(np.float32)
    y = f.root_function.inputs[0].owner
    both = C.combine([f, y])
    batch = number(2, 5)
    for answer, expected in zip(C.Predictor(both)(batch).values(), both.eval(batch).values(), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-6)
