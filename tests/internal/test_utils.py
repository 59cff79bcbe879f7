"""Helpers around evaluation (answers recorded from CNTK 2.7)."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax.internal import sanitize_batch, sanitize_input, utils

DATA = np.array([[1, 2], [3, 4]], np.float32)


def test_values_and_gradients_of_a_function():
    x = C.input_variable(2, needs_gradient=True)
    p = C.Parameter(2, init=2)
    f = x * p
    values, gradients = utils.eval(f, {x: DATA})
    np.testing.assert_array_equal(values[f.output], [[2, 4], [6, 8]])
    assert gradients is None
    values, gradients = utils.eval(f, {x: DATA}, "float", C.device.cpu(), True, {x: None, p: None})
    np.testing.assert_array_equal(gradients[x], [[2, 2], [2, 2]])
    np.testing.assert_array_equal(gradients[p], [4, 6])
    np.testing.assert_array_equal(values[f.output], [[2, 4], [6, 8]])


def test_values_and_gradients_of_sequences():
    s = C.sequence.input_variable(2, needs_gradient=True)
    values, gradients = utils.eval(s * 2, {s: [DATA, DATA[:1]]}, backward_pass=True)
    assert [v.tolist() for v in next(iter(values.values()))] == [[[2, 4], [6, 8]], [[2, 4]]]
    assert [g.tolist() for g in gradients[s]] == [[[2, 2], [2, 2]], [[2, 2]]]


def test_types_of_operands():
    p32, p64 = (C.Parameter(init=2, shape=(), dtype=dtype) for dtype in (np.float32, np.float64))
    unknown = C.placeholder()
    f32, f64 = np.asarray(1, np.float32), np.asarray(1, np.float64)
    rows = [((p32, f64), np.float32), ((p64, f32), np.float64), ((p32, p64), np.float64), ((p32 + 1,), np.float32),
            ((), None), ((f32, f64), np.float64), ((unknown, f64), np.float64), ((p32, unknown, f64), np.float32),
            ((np.float64(1),), np.float64), ((np.int64(1),), np.float32), ((1.0,), np.float32), ((unknown,), None)]
    assert [utils.get_data_type(*operands) for operands, _ in rows] == [expected for _, expected in rows]
    with pytest.raises(ValueError, match="int32"):
        utils.get_data_type(np.zeros(3, np.int32))


def test_numbers_become_constants():
    assert sanitize_input(3).dtype is np.float32
    assert sanitize_input([1, 2], np.float64).dtype is np.float64
    assert sanitize_input(np.ones(2), np.float32).dtype is np.float32
    x = C.input_variable(2)
    assert sanitize_input(x) is x
    with pytest.raises(TypeError):
        sanitize_input(None)


def test_batches_become_values():
    value = sanitize_batch(C.input_variable(2), DATA)
    np.testing.assert_array_equal(value.asarray(), DATA)
    s = C.sequence.input_variable(2)
    np.testing.assert_array_equal(sanitize_batch(s, [DATA, DATA[:1]]).mask, [[2, 1], [2, 0]])
    np.testing.assert_array_equal(sanitize_batch(s, [DATA, DATA[:1]], [True, False]).mask, [[2, 1], [1, 0]])
    with pytest.raises(ValueError, match="starts is for 1 sequences"):
        sanitize_batch(s, [DATA, DATA[:1]], [True])
    assert sanitize_batch(s, value) is value
    with pytest.raises(ValueError, match="omit seq_starts"):
        sanitize_batch(s, value, [True, True])
