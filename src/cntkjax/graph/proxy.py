"""Objects of user-defined subclasses, which wrap an internal object that holds the package's own state.

Whatever attributes and methods the subclass defines, they cannot interfere with that state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_NOTHING: Mapping[str, Any] = {}
_DELEGATING: dict[type, list[type]] = defaultdict(list)  # the classes that delegate to each class


def unwrap(thing: Any) -> Any:
    """The internal object that a user's object wraps; other objects are returned unchanged."""
    return getattr(thing, "__dict__", _NOTHING).get("__wrapped__", thing)  # without asking for members of a graph


class _Member:
    """A member that is delegated to the wrapped object, unless the subclass defines the name itself."""

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
    """A member whose assignment is delegated too."""

    def __set__(self, thing: Any, value: Any) -> None:
        setattr(thing.__wrapped__, self.name, value)


def _attribute(thing: Any, name: str) -> Any:
    if name == "__wrapped__":
        raise AttributeError(f"{type(thing).__name__}: call super().__init__(...) first")
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(thing.__wrapped__, name)
    except AttributeError as error:
        if error.obj is not thing.__wrapped__:
            raise  # an accident of a property
        message = f"{type(thing).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=thing) from None


def delegates_to(base: type, settable: Collection[str] = (), special: Collection[str] = ()) -> Callable[[Class], Class]:
    """Decorator of a subclass of `base` whose objects wrap a `base` object as ``__wrapped__``.

    All members and attributes are delegated to it; of the special methods only those in `special`. Assignments are
    delegated only for the names in `settable`.

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
    """Add members that a layer above defines to a class, and to the classes that delegate to it.

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
