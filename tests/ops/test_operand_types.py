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


def statistics(dtype):
    return [C.parameter(2, dtype=dtype), C.parameter(2, dtype=dtype), C.constant(0, 2, dtype), C.constant(1, 2, dtype)]


class TestBeforeApplication:
    @pytest.mark.parametrize("f, dtype", [  # as in CNTK
        (lambda p: C.layers.Delay()(p), np.float32), (lambda p: C.layers.Delay(T=-1)(p), np.float32),
        (lambda p: C.layers.Delay(T=0)(p), None), (lambda p: C.sequence.past_value(p), None),
        (lambda p: C.sequence.past_value(p, 1), np.float32),
        (lambda p: C.sequence.future_value(p, C.constant(DOUBLES)), np.float64),
        (lambda p: C.layers.Recurrence(C.plus)(p), np.float32),
        (lambda p: C.layers.BatchNormalization()(p), np.float32),
        (lambda p: C.batch_normalization(p, *statistics(np.float64), False, running_count=C.constant(0)), np.float64),
        (lambda p: C.cast(p, np.float64), np.float64), (lambda p: p + 1, np.float32),
    ])
    def test_the_only_typed_operand_gives_the_type(self, f, dtype):
        assert f(C.placeholder()).output.dtype is dtype

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @pytest.mark.parametrize("f", [
        lambda p: C.layers.Delay()(p), lambda p: C.sequence.past_value(p), lambda p: C.layers.Delay()(p) + p,
        lambda p: C.sequence.past_value(C.tanh(p), 0.5), lambda p: C.layers.BatchNormalization()(p),
    ])
    def test_the_operand_may_then_have_another_type(self, f, dtype):
        p, x = C.placeholder(), C.sequence.input_variable(2, dtype=dtype)
        g = f(p).replace_placeholders({p: x})
        assert g.dtype is dtype
        (value,) = g.eval({x: [[[1, 2]]]})
        np.testing.assert_allclose(value, f(x).eval({x: [[[1, 2]]]})[0], rtol=1e-6)
        assert value.dtype == dtype

    @pytest.mark.parametrize("state", [None, 0, 0.5])
    def test_a_loop_has_the_type_of_what_it_adds(self, state):
        p, x = C.placeholder(), C.sequence.input_variable(1, dtype=np.float64)
        h = 0.5 * C.sequence.past_value(p, state) + x
        h = h.replace_placeholders({p: h})
        assert h.dtype is np.float64
        np.testing.assert_allclose(h.eval({x: [[[1], [2]]]})[0][0], [1 + 0.5 * (state or 0)])

    def test_a_closed_loop_of_numbers_has_their_type_for_good(self):
        p = C.placeholder()
        h = C.sequence.past_value(p, 1) + 1
        h = h.replace_placeholders({p: h})
        assert h.dtype is np.float32
        with pytest.raises(ValueError, match="different types"):
            h + double()
