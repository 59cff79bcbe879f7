"""Arguments of public functions are checked against their annotations, and errors name the function and the argument.

The annotations are the one place that says what an argument may be. Numbers, texts, flags, lists and dicts that do
not fit are errors; other objects are used as they are, so that whatever behaves like the annotated type is accepted.
Where Python, NumPy or jax then stops inside the package, the error is replaced by one that names the argument.

A method checks before it runs, as it may change its object. A function or constructor runs first: what it says itself
about its arguments may be more. Errors that the package raises itself, and those of users' code, remain what they are.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from .annotations import Annotation, parameters_of
from .errors import ArgumentError, OutOfMemoryError, explain
from .function import Function
from .variable import Variable

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = {
    *sys.stdlib_module_names, "cntkjax", "jax", "jaxlib", "numpy", "optax", "scipy", "tensorboardX", "PIL", "cv2",
}
_ACCIDENTS = (  # what Python raises where an argument is not what the code takes it for
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, UnboundLocalError, RecursionError,
    AssertionError, StopIteration, MemoryError,
)
_CHECKED = "_arguments_checked"


class _UnfitError(ArgumentError):
    """An accident that was explained here; a function further out explains it again in terms of its own arguments."""


_UnfitError.__name__ = _UnfitError.__qualname__ = ArgumentError.__name__


def check_arguments(namespace: dict[str, Any], package: str, prefix: str = "", operands: bool = False) -> None:
    """Check the arguments of the public functions and classes that a namespace has from a package (its `__all__`).

    They are replaced in the modules that define them and in public modules of the package, too, so that there is one
    object for each. With `operands`, errors are extended by the operation and its operands.
    """
    modules = [m for name, m in sys.modules.items() if name.startswith(package) and "._" not in name]
    for name in namespace.get("__all__", list(namespace)):
        thing: Any = namespace.get(name)  # None: it is loaded when it is used
        module = getattr(thing, "__module__", None) or ""
        if name[0] == "_" or not module.startswith(package):
            continue
        if inspect.isclass(thing):
            _check_members(thing)
        elif inspect.isfunction(thing) and not is_checked(thing):
            own_name, namespace[name] = thing.__name__, checked(thing, prefix + name, operands)
            for home in (sys.modules[module], *modules):
                if vars(home).get(own_name) is thing:
                    setattr(home, own_name, namespace[name])


def _check_members(cls: type) -> None:
    """Check the arguments of the constructor and the public methods that a class defines."""
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
                raise _unfit(title, name, value, annotations[name])
            return result
        except Exception as error:
            from_outside = not sys._getframe(1).f_code.co_filename.startswith(_PACKAGE)
            _report(error, title, _bound(f, args, kwargs), annotations, operands, operands or from_outside)
            raise

    setattr(call, _CHECKED, True)
    return call  # type: ignore[return-value]


def _bound(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return inspect.signature(f).bind_partial(*args, **kwargs).arguments
    except TypeError:  # the wrong number of arguments, which Python's own message names
        return {}


def _unfit(title: str, name: str, value: object, annotation: Annotation) -> ArgumentError:
    what = f"{title}: {name} = {reprlib.repr(value)} is not possible: it has to be {annotation.words}"
    return ArgumentError(explain(what, fix=annotation.fix))


def is_checked(f: Callable[..., Any]) -> bool:
    """True for what `checked` returns."""
    return hasattr(f, _CHECKED)


def _report(
    error: Exception, title: str, arguments: Mapping[str, Any], annotations: Mapping[str, Annotation], operands: bool,
    prefix: bool,
) -> None:
    """Raise an error that names the argument instead of an accident; `prefix` a message of the package's own."""
    if re.match(r"(?s)Cache keys should be comparable.*KeyboardInterrupt", str(error)):
        # jax makes it of a Ctrl-C that arrives while one of its caches compares keys.
        raise KeyboardInterrupt from error
    if _is_users(error) or isinstance(error, OutOfMemoryError):  # which says what a program takes
        return
    is_accident = _is_accident(error)
    if is_accident or isinstance(error, (LookupError, AttributeError)):
        for name, value in arguments.items():
            if name in annotations and not annotations[name].accepts(value):
                raise _unfit(title, name, value, annotations[name]) from error
    if is_accident:
        shown = ", ".join(f"{name} = {reprlib.repr(value)}" for name, value in arguments.items() if name != "self")
        cause = error.__cause__ if isinstance(error, _UnfitError) else error
        raise _UnfitError(f"{title} cannot be called with {shown}: {cause}") from cause
    text = len(error.args) == 1 and isinstance(error.args[0], str)
    if prefix and text and isinstance(error, (ValueError, TypeError, RuntimeError)):
        error.args = (_named(title, error.args[0], _operands(arguments) if operands else ()),)


def _is_accident(error: Exception) -> bool:
    """True if Python or a library raised it inside the package, and not the package itself."""
    frames = list(_frames(error.__traceback__))[1:]
    if not frames or not isinstance(error, _ACCIDENTS):
        return False
    if isinstance(error, _UnfitError):
        return True
    frame, position = frames[-1]
    if not frame.f_code.co_filename.startswith(_PACKAGE):
        return True
    operation = next(i.opname for i in dis.get_instructions(frame.f_code) if i.offset == position)
    return operation not in ("RAISE_VARARGS", "RERAISE")


def _is_users(error: Exception) -> bool:
    """True if it was raised in code that the package called, such as a callback."""
    modules = (frame.f_globals.get("__name__", "") for frame, _ in _frames(error.__traceback__))
    return any(module.partition(".")[0] not in _LIBRARIES for module in modules)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[Any, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def _named(title: str, message: str, operands: Iterable[tuple[str, Variable]]) -> str:
    """The message, prefixed with the function and extended by the operands, if it does not mention them yet."""
    first, _, rest = message.partition("\n")
    if title.rpartition(".")[2] not in first:
        first = f"{title}: {first}"
    missing = {label: v for label, v in operands if repr(v) not in message}
    return explain(first, missing) + (f"\n{rest}" if rest else "")


def _operands(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Variable]]:
    """The operands among the arguments, with what they are called in messages."""
    for label, value in arguments.items():
        several = isinstance(value, (list, tuple))
        for i, v in enumerate(value if several else [value]):
            v = v.outputs[0] if isinstance(v, Function) and len(v.outputs) == 1 else v
            if isinstance(v, Variable):
                yield f"[{i}]" if several else label, v
