"""A variable takes its type in every form that CNTK takes."""
import numpy as np
import pytest

import cntkjax as C


@pytest.mark.parametrize(("dtype", "expected"), [
    ("float", np.float32), ("double", np.float64), (float, np.float64), (int, np.float32), (1, np.float32),
    (2, np.float64), ("float16", np.float16), (np.dtype("float64"), np.float64),
])
def test_variables_take_names_types_and_numbers(dtype, expected):
    assert C.input_variable(3, dtype=dtype).dtype is expected
    assert C.Parameter(3, init=1, dtype=dtype).dtype is expected
    assert C.Constant(1, dtype=dtype).dtype is expected


def test_a_type_without_tensors_is_refused():
    with pytest.raises(ValueError, match="int32.*is not supported: use float16"):
        C.input_variable(3, dtype=np.int32)
