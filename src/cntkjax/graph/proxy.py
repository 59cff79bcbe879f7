"""Objects of classes that users derive from ours. Each stands in front of an object of ours that keeps what we need to
know: whatever attributes and methods such a class has, nothing of ours is touched by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_DELEGATING: dict[type, list[type]] = defaultdict(list)  # the classes that delegate to each class


def unwrap(thing: Any) -> Any:
    """The internal object that a user's object wraps; other objects are returned as they are."""
    return getattr(thing, "__wrapped__", thing)


class _Member:
    """A member that an object takes from the object it wraps, unless its class has another use for the name."""

    def __init__(self, base: type, name: str) -> None:
        self.base, self.name = base, name

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        if thing is not None:
            return getattr(thing.__wrapped__, self.name)
        member = getattr(self.base, self.name)
        return _unbound(member) if isfunction(member) else member


def _unbound(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a function of the object, which may be called with one that wraps another."""

    @wraps(method)
    def call(thing: Any, *args: Any, **kwargs: Any) -> Any:
        return method(unwrap(thing), *args, **kwargs)

    return call


class _Settable(_Member):
    """One that can be set."""

    def __set__(self, thing: Any, value: Any) -> None:
        setattr(thing.__wrapped__, self.name, value)


def _attribute(thing: Any, name: str) -> Any:
    if name == "__wrapped__":
        raise AttributeError(f"{type(thing).__name__}: call super().__init__(...) first")
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(thing.__wrapped__, name)


def delegates_to(base: type, settable: Collection[str] = (), special: Collection[str] = ()) -> Callable[[Class], Class]:
    """Decorator of a subclass of `base` whose objects have an object of that kind as ``__wrapped__``.

    They have all its members and attributes; of its `special` methods those that are named. Only what is `settable` is
    set there.

    >>> class Counter:
    ...     def __init__(self):
    ...         self.count = 0
    ...     def step(self):
    ...         self.count += 1
    ...         return self.count
    >>> @delegates_to(Counter)
    ... class UserCounter(Counter):
    ...     def __init__(self):
    ...         self.__wrapped__ = Counter()
    >>> mine = UserCounter()
    >>> mine.count = 'of something else'
    >>> mine.step(), mine.step(), mine.count
    (1, 2, 'of something else')
    """

    def decorate(cls: Class) -> Class:
        for name in dir(base):
            if name not in vars(cls) and (name in special or not name.startswith("__")):
                setattr(cls, name, (_Settable if name in settable else _Member)(base, name))
        setattr(cls, "__getattr__", _attribute)  # noqa: B010 - of a type
        _DELEGATING[base].append(cls)
        return cls

    return decorate


def add_members(base: type, members: Mapping[str, Any]) -> None:
    """Give a class, and those that delegate to it, members that are defined in a layer above.

    >>> class Counter:
    ...     count = 3
    >>> add_members(Counter, {'twice': lambda self: 2 * self.count})
    >>> Counter().twice()
    6
    """
    for name, member in members.items():
        setattr(base, name, member)
        for cls in _DELEGATING[base]:
            if name not in vars(cls):
                setattr(cls, name, _Member(base, name))
