"""Arguments of public functions are checked against their annotations, and errors name the function and the argument.

The annotations are the one place that says what an argument may be. Numbers, texts, flags, lists and dicts that do
not fit are errors; other objects are used as they are, so that whatever behaves like the annotated type is accepted.
Where Python, NumPy or jax then stops inside the package, `explaining` decides whether an argument is the reason.

A method checks before it runs, as it may change its object. A function or constructor runs first: what it says itself
about its arguments may be more. Errors that the package raises itself, and those of users' code, remain what they are.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from os.path import dirname
from typing import Any, TypeVar

from .annotations import parameters_of
from .explaining import PACKAGE, PublicCall, unfit_error

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_CHECKED = "_arguments_checked"


def public(thing: T) -> T:
    """Check the arguments of a function, or of the constructor and the public methods of a class. A decorator."""
    if inspect.isclass(thing):
        _check_members(thing)
        return thing
    return checked(thing, thing.__name__)  # type: ignore[type-var, attr-defined]


def public_operation(f: F) -> F:
    """Check the arguments of an operation, whose errors are extended by its operands. A decorator."""
    return checked(f, f.__name__, operands=True)


def internal(f: F) -> F:
    """Mark a method of a public class that the package calls, in the midst of its work: it is not checked."""
    setattr(f, _CHECKED, True)
    return f


def _check_members(cls: type) -> None:
    """Check the constructor that a class defines, and the public methods that it has from this package."""
    for base in cls.__mro__:
        if not base.__module__.startswith("cntkjax") or issubclass(base, BaseException):
            continue
        for name, member in list(vars(base).items()):
            if name[0] == "_" and not (name == "__init__" and base is cls):
                continue
            inner = getattr(member, "__func__", member)
            if inspect.isfunction(inner) and not is_checked(inner):
                title = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
                wrapped = checked(inner, title, first=name != "__init__")
                setattr(base, name, wrapped if inner is member else type(member)(wrapped))


def checked(f: F, title: str, operands: bool = False, first: bool = False) -> F:
    """The function with its arguments checked: before it runs if `first`, otherwise when it has returned.

    A range is always checked before: sizes beyond it may take for ever.
    """
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        parameters = parameters_of(f)
        annotations = parameters.annotations
        try:
            unfit = [
                (name, value) for name, value in zip(parameters.positional, args, strict=False)
                if name in annotations and annotations[name].rejects(value)
            ]
            if kwargs:
                unfit += [(k, v) for k, v in kwargs.items() if k in annotations and annotations[k].rejects(v)]
            if not unfit or not any(first or annotations[name].bounded for name, _ in unfit):
                result = f(*args, **kwargs)
            for name, value in unfit:
                raise unfit_error(title, name, value, annotations[name])
            return result
        except Exception as error:
            caller = sys._getframe(1).f_code.co_filename
            # What an operation says of its operands is for all callers but the operations that are made of it.
            is_told = dirname(caller) != dirname(f.__code__.co_filename) if operands else not caller.startswith(PACKAGE)
            PublicCall(title, _bound(f, args, kwargs), annotations).report(error, operands, is_told)
            raise

    call.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]  # getfullargspec looks at no __wrapped__
    setattr(call, _CHECKED, True)
    if inspect.isfunction(f):  # in Python's own errors, of arguments that there are none of, for one
        f.__qualname__ = title
    return call  # type: ignore[return-value]


def _bound(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return inspect.signature(f).bind_partial(*args, **kwargs).arguments
    except TypeError:  # the wrong number of arguments, which Python's own message names
        return {}


def is_checked(f: Callable[..., Any]) -> bool:
    """True for what `checked` returns."""
    return hasattr(f, _CHECKED)
