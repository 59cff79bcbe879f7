"""``x[...]`` (answers recorded from CNTK 2.7, Python 3.6)."""

import numpy as np
import pytest

import cntkjax as C

ALL = slice(None)
DATA = np.arange(15, dtype=np.float32).reshape(1, 3, 5)


@pytest.mark.parametrize("key", [
    (ALL, slice(None, 2)), (slice(None, 1), ALL, ALL), slice(1, 3), (..., slice(0, 2)), (slice(0, 2), slice(-2, None)),
    ALL,
])
def test_slices_are_those_of_numpy(key):
    x = C.input_variable((3, 5))
    np.testing.assert_array_equal((x + 0)[key].eval({x: DATA}) if key != ALL else DATA,
                                  DATA[0][key[:2] if isinstance(key, tuple) else key][None])


def test_ints_keep_the_axis_and_lists_gather():
    x = C.input_variable((3, 5))
    assert x[1].eval({x: DATA}).tolist() == [[[5, 6, 7, 8, 9]]]
    assert x[:, -1].eval({x: DATA}).tolist() == [[[4], [9], [14]]]
    assert x[:, [0, 4]].eval({x: DATA}).tolist() == [[[0, 4], [5, 9], [10, 14]]]


@pytest.mark.parametrize(("key", "expected"), [
    ((..., 0), [[0], [5], [10]]), ((..., slice(0, 2)), [[0, 1], [5, 6], [10, 11]]), ((..., 1, ALL), [[5, 6, 7, 8, 9]]),
])
def test_dots_of_an_unknown_shape_count_from_the_last_axis(key, expected):
    x, p = C.input_variable((3, 5)), C.placeholder()
    assert (p * 1)[key].replace_placeholders({p: x}).eval({x: DATA}).tolist() == [expected]


@pytest.mark.parametrize(("key", "expected"), [
    ((slice(0, 2), ..., 1, ALL), [[5, 6, 7, 8, 9]]), ((0, ..., 0, 1), [[1]]), ((ALL, ALL, ..., 0), [[0], [5], [10]]),
    ((1, ..., ..., 2), [[7]]),
])
def test_an_axis_may_be_indexed_from_both_ends(key, expected):
    x = C.input_variable((3, 5))
    assert x[key].eval({x: DATA}).tolist() == [expected]


@pytest.mark.parametrize("key", [(..., 0, 1, 2), (ALL, ALL, slice(0, 2)), (ALL, ALL, 1), (ALL, ALL, [0])])
def test_too_many_indices(key):
    with pytest.raises(ValueError, match="too many indices"):
        C.input_variable((3, 5))[key]
    with pytest.raises(IndexError, match="is not an index"):
        C.input_variable((3, 5))["a"]


@pytest.mark.parametrize(("shape", "key", "expected"), [
    ((5,), (ALL, slice(None, 2)), (2,)), ((5,), (ALL, ALL, slice(None, 2)), (2,)), ((5,), (ALL, 1), (1,)),
    ((5,), (..., slice(0, 2)), (2,)), ((5,), slice(None, 2), None), ((5,), 1, None),
])
def test_keras_counts_dynamic_axes_too(shape, key, expected):
    x = C.sequence.input_variable(shape)
    C.set_global_option("align_axis", 1)
    try:
        if expected is None:
            with pytest.raises(ValueError, match="too many indices"):
                x[key]
            return
        assert x[key].shape == expected
        b = C.input_variable((3, 5))
        assert [b[k].shape for k in ((ALL, slice(2)), (ALL, ALL, slice(2)), slice(2), 1)] == [
            (2, 5), (3, 2), (3, 2), (3, 1)]
        assert C.parameter((3, 5))[:, 0:2].shape == (3, 2)
    finally:
        C.set_global_option("align_axis", 0)


def test_an_index_of_several_outputs_selects_one():
    x = C.input_variable(3, name="x")
    f = C.combine(C.tanh(x), C.sigmoid(x))
    assert (f[0], f[1], f[-1], f[0:1]) == (*f.outputs, f.outputs[1], f.outputs[:1])
    for key in 7, -3, "q", (0, 1), [0], None, 1.5:
        with pytest.raises(KeyError, match=r"x: Tensor\[3\].* has 2 outputs.*0 to 1.*f\.outputs\[i\].*find_by_name"):
            f[key]


def test_a_function_of_no_outputs():
    nothing = C.combine([])
    assert nothing.outputs == nothing.arguments == nothing.parameters == ()
    assert nothing.find_all_with_name("x") == []
    with pytest.raises(ValueError, match="nothing to compute"):
        nothing.eval()


@pytest.mark.parametrize("key", [
    np.s_[::2], np.s_[:, ::2], np.s_[::-1], np.s_[:, ::-1], np.s_[::-2, 1:4], np.s_[0::2], np.s_[..., ::3],
])
def test_an_index_with_only_a_stride_steps_or_reverses(key):
    x = C.input_variable((3, 5))
    expected = DATA[0][key]
    assert x[key].shape == expected.shape
    np.testing.assert_array_equal(x[key].eval({x: DATA})[0], expected)


@pytest.mark.parametrize("key", [np.s_[:0], np.s_[0:0], np.s_[:, 0:0], np.s_[:0:2], [], np.s_[2:2]])
def test_an_index_that_selects_nothing_is_an_error(key):
    x = C.input_variable((3, 5), name="x")
    with pytest.raises(ValueError, match=r"(?s)(selects nothing|is empty).*Input\('x'.*test_indexing.py:.*Fix: "):
        x[key]


def test_an_end_of_0_after_a_start_is_that_of_the_axis_as_in_cntk():
    x = C.input_variable((3, 5))
    np.testing.assert_array_equal(x[1:0].eval({x: DATA})[0], DATA[0, 1:])
