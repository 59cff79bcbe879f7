"""Errors inside the package: explained by an argument only if that can be the reason."""

from collections.abc import Collection

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph import explaining
from cntkjax.graph.arguments import checked

x, two = C.input_variable(3, name="x"), C.input_variable(2)


class TestErrorsOfOthers:
    def test_an_error_in_a_users_function_stays_what_it_is(self):
        def visitor(node):
            raise AttributeError("my own")

        with pytest.raises(AttributeError, match="^my own$"):
            C.logging.depth_first_search(C.relu(x), visitor)

    def test_a_wrong_number_of_arguments_is_pythons_error(self):
        with pytest.raises(TypeError, match=r"relu\(\) missing 1 required positional argument: 'x'"):
            C.relu()

    def test_the_cause_of_an_accident_is_kept(self):
        with pytest.raises(ValueError, match="find_by_name cannot be called with node = 3") as error:
            C.logging.find_by_name(3, "x")
        assert isinstance(error.value.__cause__, AttributeError)


@pytest.mark.parametrize(("accident", "kind"), [
    ("import zlib; zlib.no_such_function(3)", AttributeError), ("len(3)", TypeError), ("int('a')", ValueError),
    ("{}['no such key']", KeyError), ("(1).no_such_attribute", AttributeError),
])
def test_arguments_that_are_right_are_not_blamed_for_an_accident(accident, kind, monkeypatch):
    source = C.io.MinibatchSourceFromData({"x": np.ones((4, 2), np.float32)})
    inside = compile(accident, explaining.PACKAGE + "io/_reader.py", "exec")
    monkeypatch.setattr("cntkjax.io._user_source.np", _Raising(inside))
    with pytest.raises(kind) as error:
        source.next_minibatch(8)
    assert "cannot be called with" not in str(error.value) and "minibatch_size" not in str(error.value)


@pytest.mark.parametrize(("streams", "is_blamed"), [
    (lambda source: {C.input_variable(2): source.streams.x}, False), (lambda source: [source.streams.x], False),
    (lambda source: {C.input_variable(2): object()}, True),
])
def test_objects_of_the_package_are_not_blamed_for_an_accident(streams, is_blamed):
    source = C.io.MinibatchSourceFromData({"x": np.ones((4, 2), np.float32)})
    scope = {"__name__": "cntkjax.io._reader", "Collection": Collection}
    exec(compile("def read(streams: Collection): len(3)", explaining.PACKAGE + "io/_reader.py", "exec"), scope)
    with pytest.raises((TypeError, ValueError)) as error:
        checked(scope["read"], "read")(streams(source))
    assert ("read cannot be called with" in str(error.value)) == is_blamed


class _Raising:
    """In the place of NumPy: runs code that breaks down, in a module of the package's name."""

    def __init__(self, code):
        self._code = code

    def __getattr__(self, name):
        exec(self._code, {"__name__": "cntkjax.io._reader"})
