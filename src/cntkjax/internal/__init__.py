"""Helpers under the names that CNTK gives its own, as scripts import them."""
from .sanitize import (
    _as_tuple,
    _value_as_sequence_or_array,
    data_type_to_dtype,
    is_byte_buffer,
    is_string,
    sanitize_2d_number,
    sanitize_axis,
    sanitize_axis_list,
    sanitize_batch,
    sanitize_dtype_cntk,
    sanitize_dtype_numpy,
    sanitize_dynamic_axes,
    sanitize_input,
    sanitize_multi_axis_reduction_list,
    sanitize_permutation,
    sanitize_precision,
    sanitize_range,
    sanitize_shape,
    sanitize_value,
)
from .swig_helper import map_if_possible, typemap
