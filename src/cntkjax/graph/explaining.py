"""Errors that happen inside the package, explained by the arguments of the public function that was called.

Where Python, NumPy or jax stops inside the package, and what it stops at is an argument, or a piece of one, the error
is replaced by one that names the argument. Errors that the package raises itself get the name of the function, and the
operands of an operation. Those of users' code, and of a library at work on other objects, remain what they are.
"""

from __future__ import annotations

import linecache
import os
import re
import reprlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .annotations import Annotation
from .errors import ArgumentError, OutOfMemoryError, explain
from .function import Node
from .variable import Edge

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = {
    *sys.stdlib_module_names, "cntkjax", "jax", "jaxlib", "numpy", "optax", "scipy", "tensorboardX", "PIL", "cv2",
}
_ACCIDENTS = (  # what Python raises where an argument is not what the code takes it for
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, UnboundLocalError, RecursionError,
    AssertionError, StopIteration, MemoryError,
)


_CONTAINERS = (list, tuple, set, dict)


class _UnfitError(ArgumentError):
    """An accident that was explained here; a function further out explains it again in terms of its own arguments."""


_UnfitError.__name__ = _UnfitError.__qualname__ = ArgumentError.__name__


def unfit_error(title: str, name: str, value: object, annotation: Annotation) -> ArgumentError:
    """The error of an argument that its annotation does not accept."""
    what = f"{title}: {name} = {reprlib.repr(value)} is not possible: it has to be {annotation.words}"
    return ArgumentError(explain(what, fix=annotation.fix))


@dataclass(frozen=True)
class PublicCall:
    """A call of a public function: its name in messages, its arguments, and their annotations."""

    title: str
    arguments: Mapping[str, Any]
    annotations: Mapping[str, Annotation]

    def report(self, error: Exception, operands: bool, prefix: bool) -> None:
        """Raise an error that names the argument instead of an accident; `prefix` a message of the package's own."""
        if re.match(r"(?s)Cache keys should be comparable.*KeyboardInterrupt", str(error)):
            # jax makes it of a Ctrl-C that arrives while one of its caches compares keys.
            raise KeyboardInterrupt from error
        if _is_users(error) or isinstance(error, OutOfMemoryError):  # which says what a program takes
            return
        is_accident = _is_accident(error)
        if is_accident or isinstance(error, (LookupError, AttributeError)):
            for name, value in self.arguments.items():
                if name in self.annotations and not self.annotations[name].accepts(value):
                    raise unfit_error(self.title, name, value, self.annotations[name]) from error
        if is_accident:
            cause = error.__cause__ if isinstance(error, _UnfitError) else error
            if self._is_reason_of(cause):
                shown = (f"{k} = {reprlib.repr(v)}" for k, v in self.arguments.items() if k != "self")
                raise _UnfitError(f"{self.title} cannot be called with {', '.join(shown)}: {cause}") from cause
            return
        text = len(error.args) == 1 and isinstance(error.args[0], str)
        if prefix and text and isinstance(error, (ValueError, TypeError, RuntimeError)):
            error.args = (_named(self.title, error.args[0], _operands(self.arguments) if operands else ()),)

    def _is_reason_of(self, accident: BaseException | None) -> bool:
        """Whether an argument that may be wrong can have caused an accident.

        Numbers, texts and flags that fit their annotations cannot, nor the package's own objects, alone or in lists and
        dicts. An attribute is missing of an argument or a piece of one, or of what Python and NumPy make of these,
        never of a module or an object of the package's own.
        """
        arguments = {k: v for k, v in self.arguments.items() if k != "self"}
        owner = accident.obj if isinstance(accident, AttributeError) else None
        if owner is not None and any(owner is piece for value in arguments.values() for piece in _pieces(value)):
            return True
        if not isinstance(accident, MemoryError) and all(map(self._is_proven, arguments, arguments.values())):
            return False
        is_plain = type(owner).__module__ in ("builtins", "numpy") and not isinstance(owner, ModuleType)
        return owner is None or is_plain

    def _is_proven(self, name: str, value: object) -> bool:
        annotation = self.annotations.get(name)
        if annotation is None or not annotation.accepts(value):
            return False
        items = [piece for piece in _pieces(value) if not isinstance(piece, _CONTAINERS)]
        return annotation.exact or (items != [] and all(map(_is_own, items)))


def _is_own(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "cntkjax"


def _pieces(value: object, depth: int = 3) -> Iterator[object]:
    """An object, and the items of lists and dicts down to this depth."""
    yield value
    if depth and isinstance(value, (list, tuple, set, Mapping)):
        for item in (*value, *value.values()) if isinstance(value, Mapping) else value:
            yield from _pieces(item, depth - 1)


def _is_accident(error: Exception) -> bool:
    """True if Python or a library raised it inside the package, and not the package itself."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames or not isinstance(error, _ACCIDENTS):
        return False
    if isinstance(error, _UnfitError):
        return True
    file, line, column = frames[-1].filename, frames[-1].lineno, frames[-1].colno
    if not file.startswith(PACKAGE):
        return True
    if line is None or column is None:  # an interpreter that keeps no positions
        return False
    return not linecache.getline(file, line)[column:].startswith("raise")


def _is_users(error: Exception) -> bool:
    """True if it was raised in code that the package called, such as a callback."""
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(module.partition(".")[0] not in _LIBRARIES for module in modules)


def _named(title: str, message: str, operands: Iterable[tuple[str, Edge]]) -> str:
    """The message, prefixed with the function and extended by the operands, if it does not mention them yet."""
    first, _, rest = message.partition("\n")
    if title.rpartition(".")[2] not in first:
        first = f"{title}: {first}"
    missing = {label: v for label, v in operands if repr(v) not in message}
    return explain(first, missing) + (f"\n{rest}" if rest else "")


def _operands(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Edge]]:
    """The operands among the arguments, with what they are called in messages."""
    for label, value in arguments.items():
        several = isinstance(value, (list, tuple))
        for i, v in enumerate(value if several else [value]):
            v = v.outputs[0] if isinstance(v, Node) and len(v.outputs) == 1 else v
            if isinstance(v, Edge):
                yield f"[{i}]" if several else label, v
