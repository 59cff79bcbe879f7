"""Normalization of arguments (answers recorded from CNTK 2.7)."""
import numpy as np
import pytest

from cntkjax import internal
from cntkjax.compat import cntk_py
from cntkjax.graph.axis import Axis


@pytest.mark.parametrize(("shape", "expected"), [
    (3, (3,)), ((3, 4), (3, 4)), ([3, 4], (3, 4)), ((), ()), (-1, (-1,)), (np.int32(3), (3,)),
    (np.array([2, 3]), (2, 3)), ("ab", ("ab",)),
])
def test_shapes_and_other_things_as_tuples(shape, expected):
    assert internal.sanitize_shape(shape) == internal._as_tuple(shape) == expected


def test_none_is_not_a_shape():
    with pytest.raises(TypeError):
        internal.sanitize_shape(None)


@pytest.mark.parametrize(("dtype", "numpy_type", "number"), [
    ("float", np.float32, cntk_py.DataType_Float), ("double", np.float64, cntk_py.DataType_Double),
    ("float32", np.float32, 1), (np.float32, np.float32, 1), (np.dtype("float64"), np.float64, 2),
    (float, np.float64, 2), (int, np.float32, 1), ("float16", np.float16, cntk_py.DataType_Float16),
    (np.int8, np.int8, cntk_py.DataType_Int8), ("int16", np.int16, cntk_py.DataType_Int16),
])
def test_types_are_converted(dtype, numpy_type, number):
    assert internal.sanitize_dtype_numpy(dtype) is numpy_type
    assert internal.sanitize_dtype_numpy(number) is numpy_type
    assert internal.sanitize_dtype_cntk(dtype) == number
    assert internal.data_type_to_dtype(number) is numpy_type


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, bool, "x", 3])
def test_types_without_tensors_are_refused(dtype):
    with pytest.raises(ValueError, match="is not supported: use float16"):
        internal.sanitize_dtype_numpy(dtype)
    with pytest.raises(ValueError, match="is not supported"):
        internal.sanitize_dtype_cntk(dtype)


def test_an_unknown_type_has_a_number():
    assert internal.sanitize_dtype_cntk(None) == cntk_py.DataType_Unknown
    assert internal.data_type_to_dtype(cntk_py.DataType_Unknown) is object
    with pytest.raises(ValueError, match='"None" is not supported'):
        internal.sanitize_dtype_numpy(None)


def test_precisions_are_types():
    assert internal.sanitize_precision("float") is np.float32
    assert internal.sanitize_precision(cntk_py.DataType_Double) is np.float64


def test_pairs_of_numbers():
    assert internal.sanitize_2d_number(1.5) == (1.5, 1.5)
    assert internal.sanitize_range((3, 4)) == (3, 4)
    for wrong in ([1, 2], (1,), None, ("a", 1)):
        with pytest.raises(ValueError, match="a number or a tuple of two numbers"):
            internal.sanitize_range(wrong)


@pytest.mark.parametrize(("axis", "index"), [(0, -1), (1, -2), (-1, 0), (Axis(2), -3), (Axis(-2), 1)])
def test_static_axes_are_counted_from_the_other_end(axis, index):
    assert internal.sanitize_axis(axis) == Axis(index)
    assert internal.sanitize_axis_list([axis, 0]) == [Axis(index), Axis(-1)]


@pytest.mark.parametrize("axis", [Axis.default_batch_axis(), Axis.default_dynamic_axis(), Axis.all_static_axes(),
                                  Axis.new_leading_axis()], ids=str)
def test_other_axes_are_unchanged(axis):
    assert internal.sanitize_axis(axis) == axis
    assert internal.sanitize_multi_axis_reduction_list(axis) == [axis]


def test_no_axis_means_all_static_axes():
    assert internal.sanitize_axis(None) == Axis.all_static_axes()
    with pytest.raises(TypeError, match="expected an Axis, an int or None"):
        internal.sanitize_axis("x")


def test_dynamic_axes_are_stored_in_reverse():
    axes = (Axis.default_batch_axis(), Axis.default_dynamic_axis())
    assert internal.sanitize_dynamic_axes(axes) == axes[::-1]
    assert internal.sanitize_dynamic_axes(axes[0]) == axes[:1]
    assert internal.sanitize_dynamic_axes(()) == ()
    with pytest.raises(TypeError, match="type Axis expected"):
        internal.sanitize_dynamic_axes([1])


@pytest.mark.parametrize("perm", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0,), (-1, 0), [1, 0, 2, 3]])
def test_permutations_of_reversed_axes_do_the_same(perm):
    x = np.arange(120).reshape(*(2, 3, 4, 5)[:len(perm)], -1)[..., 0]
    np.testing.assert_array_equal(x.T.transpose(internal.sanitize_permutation(perm)), x.transpose(perm).T)


def test_the_value_of_one_variable_comes_without_its_variable():
    assert internal.sanitize_variable_value_dict({"x": 3}) == 3
    both = {"x": 3, "y": 4}
    assert internal.sanitize_variable_value_dict(both) is both
    with pytest.raises(ValueError, match="there is no value"):
        internal.sanitize_variable_value_dict({})


def test_flags_of_attributes_change_their_order():
    attributes = {"sharing": [True, False], "strides": (1, 2)}
    assert internal.sanitize_Function_attributes(attributes) is attributes
    assert attributes == {"sharing": [False, True], "strides": (1, 2)}


def test_strings_and_bytes_are_distinguished():
    assert [internal.is_string(s) for s in ("a", b"a", 3)] == [True, False, False]
    assert [internal.is_byte_buffer(s) for s in ("a", b"a", bytearray(b"a"), 3)] == [False, True, True, False]


def test_values_that_need_no_wrapping_are_returned_unchanged():
    assert internal.typemap(len) is len
    assert internal.map_if_possible({1: 2}) is None


@pytest.mark.parametrize("perm", [(1, 1), (0, 2), (-3, 1)])
def test_what_is_no_permutation_is_refused(perm):
    with pytest.raises(ValueError, match=r"is no permutation: name each of the axes 0 to 1 once"):
        internal.sanitize_permutation(perm)
