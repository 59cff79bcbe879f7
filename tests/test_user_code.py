"""Warnings point to the user's line, through the decorators of public functions and any function of the package."""

import runpy
import warnings

import numpy as np
import pytest

import cntkjax as C
from cntkjax._user_code import line_of
from cntkjax.internal.sanitize import sanitize_batch


def nothing_running():
    return C.batch_normalization(C.input_variable(2), *map(C.constant, [[1, 1], [0, 0], [0, 0], [1, 1]]), spatial=False)


@pytest.mark.parametrize("call, category", [
    (lambda: C.learning_rate_schedule(0.1, C.UnitType.sample), DeprecationWarning),
    (lambda: C.learning_parameter_schedule(0.1, epoch_size=3), RuntimeWarning),
    (lambda: C.layers.RNNUnit(3), DeprecationWarning),
    (nothing_running, UserWarning),
    (lambda: sanitize_batch(C.input_variable(2), np.zeros((2, 3), np.float32).T), RuntimeWarning),
])  # fmt: skip
def test_a_warning_points_to_the_line_that_called_the_package(call, category):
    with pytest.warns(category) as caught:
        call()
    assert {warning.filename for warning in caught} == {__file__}
    assert {warning.lineno for warning in caught} == {
        nothing_running.__code__.co_firstlineno + 1 if call is nothing_running else call.__code__.co_firstlineno
    }


def test_a_deprecated_function_warns_a_script_by_default():
    """Python shows a DeprecationWarning only where it points into `__main__`."""
    script = compile("C.learning_rate_schedule(0.1, C.UnitType.sample)", "script.py", "exec")
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
        exec(script, {"C": C, "__name__": "__main__"})
    assert [warning.filename for warning in caught] == ["script.py"]


def test_what_python_itself_calls_has_no_line_of_the_user():
    assert line_of((runpy.run_module.__code__, 0)) == ""  # as the command line, by python -m cntkjax
