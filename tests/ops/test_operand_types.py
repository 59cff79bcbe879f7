"""The element type of operations on NumPy arrays, as CNTK 2.7 has it."""

import numpy as np
import pytest

import cntkjax as C

DOUBLES, SINGLES = np.ones(3), np.ones(3, np.float32)
MATRIX = np.ones((3, 2))


def single():
    return C.input_variable(3)


def double():
    return C.input_variable(3, dtype=np.float64)


ALONE = {
    "reshape": lambda x: C.reshape(x, (3, 1)), "slice": lambda x: C.slice(x, 0, 0, 1),
    "one_hot": lambda x: C.one_hot(x, 4), "top_k": lambda x: C.top_k(x, 2), "pad": lambda x: C.pad(x, [(1, 1)]),
    "random_sample": lambda x: C.random_sample(x, 2, True), "splice": lambda x: C.splice(x, x),
    "element_select": lambda x: C.element_select(x, x, x), "transpose": lambda x: C.transpose(x[None], (1, 0)),
} | {op.__name__: op for op in (
    C.relu, C.exp, C.sqrt, C.square, C.softplus, C.softmax, C.log_softmax, C.hardmax, C.reduce_sum, C.reduce_mean,
    C.argmax, C.alias, C.to_batch, C.ones_like, C.selu, C.leaky_relu, C.dropout, C.element_not,
)}


@pytest.mark.parametrize("op", ALONE.values(), ids=ALONE)
def test_a_single_array_is_converted_to_single_precision(op):
    assert op(DOUBLES).outputs[0].dtype is np.float32


@pytest.mark.parametrize("op", [C.floor, C.ceil, C.round, C.stop_gradient], ids=lambda op: op.__name__)
def test_some_operations_keep_the_type_of_an_array(op):
    assert op(DOUBLES).dtype is np.float64
    assert op(SINGLES).dtype is np.float32


@pytest.mark.parametrize("op", [
    C.plus, C.minus, C.element_times, C.element_max, C.pow, C.less, C.squared_error, C.binary_cross_entropy,
    C.cosine_distance, C.times_transpose,
], ids=lambda op: op.__name__)
def test_several_arrays_are_converted_to_the_widest_type(op):
    assert op(DOUBLES, SINGLES).dtype is op(SINGLES, DOUBLES).dtype is np.float64
    assert op(SINGLES, SINGLES).dtype is np.float32


def test_an_array_is_converted_to_the_type_of_a_variable():
    assert (single() + DOUBLES).dtype is (DOUBLES + single()).dtype is np.float32
    assert (double() + SINGLES).dtype is C.plus(SINGLES, double()).dtype is np.float64
    assert C.times(single(), MATRIX).dtype is np.float32
    assert C.splice(double(), SINGLES).dtype is C.element_select(SINGLES, double(), SINGLES).dtype is np.float64
    assert C.gather(MATRIX, single()).dtype is np.float32


def test_constants_and_parameters_keep_the_type_of_their_array():
    assert C.constant(DOUBLES).dtype is C.parameter(init=DOUBLES).dtype is np.float64
    assert C.constant(SINGLES).dtype is C.parameter(init=SINGLES).dtype is np.float32
