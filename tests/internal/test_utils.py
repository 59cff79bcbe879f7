"""Helpers around evaluation (answers recorded from CNTK 2.7)."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax.internal import _as_tuple as as_tuple
from cntkjax.internal import sanitize_batch, sanitize_input, sanitize_var_map, utils

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


def test_arguments_of_a_call_are_mapped_as_in_cntk():
    by_name = {"x": "a", "y": "b"}
    for args, names in ((1, 2), {}), ((1,), {"y": 2}), ((), {"x": 1, "y": 2}), ((1, 2, 3), {}):
        assert utils.map_function_arguments(["a", "b"], by_name, *args, **names) == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="unexpected keyword argument 'z': there are x, y"):
        utils.map_function_arguments(["a", "b"], by_name, 1, z=2)
    with pytest.raises(SyntaxError, match="multiple values for argument 'x'"):
        utils.map_function_arguments(["a", "b"], by_name, 1, x=2)
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        utils.map_function_arguments(["a", "b"], by_name, 1)


def test_data_of_variables_become_values():
    """Recorded from CNTK 2.7."""
    x, y = C.sequence.input_variable(3, name="x"), C.input_variable(3, name="y")
    data, array = [np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)], np.ones((2, 3), np.float32)
    for feeds in {x: (data, [True, False])}, {"x": (data, [True, False])}, (data, [True, False]), (
            {x: data}, [True, False]):
        values = sanitize_var_map([x], feeds)
        assert list(values) == [x] and values[x].mask.tolist() == [[2, 1], [1, 0]]
    assert sanitize_var_map([y], array, np.float64, C.cpu())[y].shape == (2, 3)
    assert sanitize_var_map([x, y], {y: array})[y].dtype is np.float32
    assert sanitize_var_map([], None) == sanitize_var_map([], {}) == {}
    source = C.io.MinibatchSourceFromData({"y": array})
    stream = source.next_minibatch(2)[source.streams.y]
    assert isinstance(sanitize_var_map([y], {y: stream})[y], C.Value)
    assert sanitize_var_map([y], {y: stream}, extract_values_from_minibatch_data=False)[y] is stream
    for wrong in None, {}, ():
        with pytest.raises(ValueError, match="function expects 1 arguments"):
            sanitize_var_map([y], wrong)
    with pytest.raises(ValueError, match=r"non-dict argument \(ndarray\) is not supported"):
        sanitize_var_map([x, y], array)
    with pytest.raises(ValueError, match="no argument 'z': there are y"):
        sanitize_var_map([y], {"z": array})


def test_private_helpers_that_programs_import():
    from cntkjax.layers import blocks, layers
    from cntkjax.logging.progress_print import _avg, _warn_deprecated

    assert blocks._as_tuple is layers._as_tuple is as_tuple
    assert (_avg(4, 2), _avg(1, 0), _avg(np.array([2, 4]), 2).tolist()) == (2, 0, [1, 2])
    with pytest.warns(DeprecationWarning, match="DEPRECATED: it is old") as caught:
        _warn_deprecated("it is old")
    assert caught[0].filename == __file__
