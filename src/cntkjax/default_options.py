"""Defaults of layers' arguments, set for all code within a ``with`` statement.

>>> def layer(width, activation=default_override_or(None)):
...     return width, get_default_override(layer, activation=activation)
>>> with default_options(activation="relu"):
...     print(layer(3), layer(3, activation="tanh"))
(3, 'relu') (3, 'tanh')
>>> layer(3)
(3, None)
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from .graph.annotations import EXACT
from .graph.arguments import public

__all__ = ["default_options", "default_options_for", "default_override_or", "get_default_override",
           "get_global_option", "is_default_override", "set_global_option"]

Layer = Callable[..., Any]

_scopes: list[_OptionsContextManager] = []  # of the active `with` statements, the innermost last
_global_options: dict[str, Any] = {}


@public
class default_override_or:
    """A parameter's default that ``default_options`` may override; ``value`` is used where it does not.

    >>> default_override_or(5).value
    5
    """

    def __init__(self, value: object) -> None:
        self.value: Any = value


class _OptionsContextManager:
    """One scope of defaults: ``options`` for the functions in ``scope``, or for all if ``scope`` is None."""

    def __init__(self, scope: frozenset[Layer | None] | None, options: dict[str, Any]) -> None:
        self.scope, self.options = scope, options

    def __enter__(self) -> _OptionsContextManager:
        _scopes.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _scopes.pop()

    def applies(self, function: Layer | None, key: str) -> bool:
        """Whether this scope has a default for the argument ``key`` of a function."""
        return key in self.options and (self.scope is None or _unwrapped(function) in self.scope)


def _unwrapped(function: Layer | None) -> Layer | None:
    """The function itself: a public one may be wrapped by the check of its arguments."""
    return inspect.unwrap(function) if callable(function) else function


@public
def default_options(**kwargs: Any) -> _OptionsContextManager:
    """Within ``with default_options(activation=relu):`` every layer that takes ``activation`` has that default.

    An argument that the caller passes takes precedence, and so does an inner scope over an outer one.

    >>> with default_options(init=0):
    ...     pass
    """
    return _OptionsContextManager(None, kwargs)


@public
def default_options_for(functions: Layer | Iterable[Layer], **kwargs: Any) -> _OptionsContextManager:
    """As ``default_options``, but only for the given function, or list or tuple of functions.

    >>> def layer(bias=default_override_or(True)):
    ...     return get_default_override(layer, bias=bias)
    >>> with default_options_for(layer, bias=False):
    ...     layer()
    False
    """
    several: Iterable[Any] = functions if isinstance(functions, list | tuple) else [functions]
    scope = frozenset(map(_unwrapped, several))
    return _OptionsContextManager(scope, kwargs)


@public
def is_default_override(value: object) -> bool:
    """Whether ``value`` is a ``default_override_or``, that is, was not passed by the caller.

    >>> is_default_override(default_override_or(1)), is_default_override(1)
    (True, False)
    """
    return isinstance(value, default_override_or)


@public
def get_default_override(function_or_class: Layer | None, **kwargs: object) -> Any:
    """The value of one argument: the caller's, else the innermost default for this function, else the function's own.

    With None instead of a function, only defaults for all functions count.

    Errors: TypeError unless exactly one keyword is given and names a parameter of ``function_or_class``; ValueError if
    that is not a function or class.

    >>> def layer(bias=default_override_or(True)):
    ...     return get_default_override(layer, bias=bias)
    >>> layer(), layer(bias=3)
    (True, 3)
    """
    if len(kwargs) != 1:
        raise TypeError(f"get_default_override() takes 1 keyword argument but {len(kwargs)} were given")
    (key, value), = kwargs.items()
    if function_or_class is not None and key not in _parameter_names(function_or_class):
        raise TypeError(f"{function_or_class.__name__}() has no argument named {key!r}")
    if not is_default_override(value):
        return value
    for scope in reversed(_scopes):
        if scope.applies(function_or_class, key):
            value = scope.options[key]
            break
    return value.value if isinstance(value, default_override_or) else value


@cache
def _parameter_names(function_or_class: Layer) -> frozenset[str]:
    if not (inspect.isroutine(function_or_class) or inspect.isclass(function_or_class)):
        raise ValueError(f"get_default_override() needs a Python function or class, not {function_or_class!r}")
    return frozenset(inspect.signature(function_or_class).parameters)


@public
def set_global_option(key: str, value: object) -> None:
    """Set an option of the process, such as ``'align_axis'``; unlike ``default_options`` it has no scope.

    >>> set_global_option("example_option", 1)
    >>> get_global_option("example_option", 0)
    1
    """
    _global_options[key] = value


@public
def get_global_option(key: str, default_value: object) -> Any:
    """The option set by ``set_global_option``, or ``default_value`` if it was never set.

    >>> get_global_option("never_set", 7)
    7
    """
    return _global_options.get(key, default_value)


EXACT.add(default_override_or)
