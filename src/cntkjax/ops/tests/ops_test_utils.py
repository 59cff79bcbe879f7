"""Helpers for tests of operations, which published scripts import."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...device import DeviceDescriptor, cpu, gpu
from ...internal.utils import eval as cntk_eval
from ...tests.test_utils import AA, PRECISION_TO_TYPE, TOLERANCE_ABSOLUTE, set_device_from_pytest_env

__all__ = [
    "AA", "PRECISION_TO_TYPE", "TOLERANCE_ABSOLUTE", "cntk_device", "cntk_eval", "compare_lists_of_np_arrays", "cpu",
    "gpu", "set_device_from_pytest_env", "unittest_helper",
]


def cntk_device(device_id: int) -> DeviceDescriptor:
    """The device that CNTK 1 gave this number: -1 is the CPU, others are accelerators.

    Errors: ValueError if there is no such accelerator.

    >>> cntk_device(-1)
    CPU
    """
    return cpu() if device_id == -1 else gpu(device_id)


def compare_lists_of_np_arrays(first_list: Sequence[Any], second_list: Sequence[Any]) -> bool:
    """Whether two lists contain the same arrays, in any order; differences below 1e-6 do not count.

    >>> compare_lists_of_np_arrays([np.ones(2), np.zeros(3)], [np.zeros(3), np.ones(2)])
    True
    """
    others = list(second_list)
    for array in first_list:
        place = next((i for i, other in enumerate(others) if _agree(array, other)), None)
        if place is None:
            return False
        del others[place]
    return not others


def unittest_helper(
    root_node: Any, forward_input: Mapping[Any, Any] | None, expected_forward: Iterable[Any] | None,
    expected_backward: Mapping[Any, Iterable[Any]] | None, device_id: int = -1, precision: str = "float",
) -> None:
    """Assert that a function has these values, and the sum of them these gradients.

    Shapes: `expected_forward`, and `expected_backward` for each of its variables, have an array for each sample or
            sequence; None expects nothing.
    Errors: AssertionError.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, needs_gradient=True)
    >>> unittest_helper(x * x, {x: np.array([[1, 2]], np.float32)}, [[1, 4]], {x: [[2, 4]]})
    """
    device, wants_gradients = cntk_device(device_id), expected_backward is not None
    values, gradients = cntk_eval(root_node, forward_input, precision, device, wants_gradients, expected_backward)
    if expected_forward is not None:
        (value,) = values.values()
        _assert_agree(value, expected_forward)
    for variable, expected in (expected_backward or {}).items():
        _assert_agree((gradients or {})[variable], expected)


def _assert_agree(values: Iterable[Any], expected: Iterable[Any]) -> None:
    for value, e in zip(values, expected, strict=True):
        assert _agree(value, e), f"{value!r} instead of {e!r}"


def _agree(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and np.allclose(a, b, atol=TOLERANCE_ABSOLUTE)
