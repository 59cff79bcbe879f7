"""Scopes of defaults: the caller's argument, then the innermost scope, then the function's own default."""
import importlib

import pytest

options = importlib.import_module("cntkjax.default_options")
default_options, default_options_for = options.default_options, options.default_options_for
default_override_or, get_default_override = options.default_override_or, options.get_default_override


def dense(activation=default_override_or(3), init=default_override_or("i")):
    return get_default_override(dense, activation=activation), get_default_override(dense, init=init)


def pool(activation=default_override_or(4)):
    return get_default_override(pool, activation=activation)


def test_without_a_scope_the_default_of_the_function_applies():
    assert (dense(), pool()) == ((3, "i"), 4)


def test_the_argument_of_the_caller_takes_precedence():
    with default_options(activation=7):
        assert dense(activation=5) == (5, "i")
        assert dense(activation=None) == (None, "i")


def test_a_scope_holds_for_all_functions_and_ends():
    with default_options(activation=7):
        assert (dense(), pool()) == ((7, "i"), 7)
    assert (dense(), pool()) == ((3, "i"), 4)


def test_none_is_a_default_like_any_other():
    with default_options(activation=None):
        assert pool() is None


def test_the_innermost_scope_takes_precedence():
    with default_options(activation=1), default_options(init=2):
        assert dense() == (1, 2)
        with default_options(activation=5):
            assert dense() == (5, 2)
        assert dense() == (1, 2)


@pytest.mark.parametrize("functions", [pool, [pool], (pool,)])
def test_a_scope_for_some_functions_does_not_apply_to_others(functions):
    with default_options_for(functions, activation=8):
        assert (dense(), pool()) == ((3, "i"), 8)


def test_an_inner_scope_for_all_precedes_an_outer_one_for_some():
    with default_options_for(pool, activation=8), default_options(activation=9):
        assert pool() == 9
    with default_options(activation=9), default_options_for(pool, activation=8):
        assert (dense(), pool()) == ((9, "i"), 8)


def test_an_exception_ends_the_scope():
    with pytest.raises(KeyError), default_options(activation=9):
        raise KeyError
    assert pool() == 4


def test_one_context_may_be_entered_twice():
    context = default_options(activation=1)
    with context:
        with context:
            assert pool() == 1
        assert pool() == 1
    assert pool() == 4


def test_classes_have_defaults_too():
    class Layer:
        def __init__(self, width=default_override_or(2)):
            self.width = get_default_override(Layer, width=width)

    with default_options(width=6):
        assert Layer().width == 6
    assert Layer().width == 2


@pytest.mark.parametrize("value", [default_override_or(1), 1])
def test_a_name_that_is_not_a_parameter_is_an_error(value):
    with pytest.raises(TypeError, match=r"pool\(\) has no argument named 'actvation'"):
        get_default_override(pool, actvation=value)


def test_exactly_one_argument_is_requested():
    with pytest.raises(TypeError, match="takes 1 keyword argument but 2 were given"):
        get_default_override(dense, activation=1, init=1)


def test_only_functions_and_classes_have_defaults():
    with pytest.raises(ValueError, match="needs a Python function or class"):
        get_default_override(3, activation=1)


def test_global_options_are_independent_of_scopes():
    options.set_global_option("activation", 5)
    with default_options(activation=6):
        assert options.get_global_option("activation", 0) == 5
        options.set_global_option("other", 2)
    assert pool() == 4
    assert options.get_global_option("other", 0) == 2
    assert options.get_global_option("missing", 0) == 0


def test_none_means_any_function():
    assert get_default_override(None, init=default_override_or(3)) == 3
    assert get_default_override(None, init=4) == 4
    with default_options(init=7), default_options_for(dense, init=8):
        assert get_default_override(None, init=default_override_or(3)) == 7
