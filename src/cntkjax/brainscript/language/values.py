"""What expressions of BrainScript evaluate to: records, functions, nodes; and what is not evaluated yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...configuration import Place
from ..nodes import NetNode
from .syntax import Expression, Lambda

# Numbers are floats, truth values bools, strings strs, arrays `Array`.


class Thunk:
    """An expression, or function of `path`, that is evaluated when its value is first needed.

    `path`: the name of a node that it creates.
    """

    __slots__ = ("expression", "path", "running", "scope", "value")

    def __init__(
        self, expression: Expression | Callable[[str], Any] | None, scope: Fields | None, path: str, value: Any = None,
    ) -> None:
        self.expression = expression
        self.scope = scope
        self.path = path
        self.value = value
        self.running = False


class Fields:
    """Named values, and the scope of expressions inside it.

    `outer`: the scope around it; `is_call`: it holds the arguments of a call.
    """

    __slots__ = ("is_call", "members", "outer", "path")

    def __init__(self, outer: Fields | None, path: str = "", is_call: bool = False) -> None:
        self.members: dict[str, Thunk] = {}
        self.outer = outer
        self.path = path
        self.is_call = is_call

    def find(self, name: str) -> Thunk | None:
        """What a name means here: a member of this record or of one around it."""
        scope: Fields | None = self
        while scope is not None:
            if name in scope.members:
                return scope.members[name]
            scope = scope.outer
        return None

    def names(self) -> Iterator[str]:
        """All names that can be used here, the innermost first."""
        scope: Fields | None = self
        while scope is not None:
            yield from scope.members
            scope = scope.outer

    def option(self, name: str) -> Thunk | None:
        """A member of this record, or an argument of the calls directly around it."""
        scope: Fields | None = self
        while scope is not None and (scope is self or scope.is_call):
            if name in scope.members:
                return scope.members[name]
            scope = scope.outer
        return None

LONGEST = 10**6  # characters of a string


@dataclass(frozen=True, eq=False)
class Array:
    """Elements from an index on."""

    elements: list[Thunk]
    first: int = 0


@dataclass(frozen=True, eq=False)
class Closure:
    """A function that is written in BrainScript, and the scope of its definition."""

    definition: Lambda
    scope: Fields


@dataclass(frozen=True, eq=False)
class Builtin:
    """A function that is written in Python: `call` gets an `Applied`; `parameters` name nodes that arguments create."""

    name: str
    call: Callable[[Applied], Any]
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Applied:
    """A call of a `Builtin`: its arguments, and the name of a node that it creates."""

    evaluator: Any
    arguments: list[Thunk]
    named: dict[str, Thunk]
    path: str
    place: Place

    def values(self) -> list[Any]:
        """The values of the positional arguments."""
        return [self.evaluator.force(argument) for argument in self.arguments]

    def error(self, message: str) -> Exception:
        """An error at the call."""
        return self.evaluator.error(self.place, message)


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network from a file or a description; its nodes are read like members of a record."""

    nodes: dict[str, NetNode]
    roles: dict[str, list[str]]


def kind_of(value: Any) -> str:
    """What a value is, in messages."""
    kinds = (
        (bool, "a truth value"), (float, "a number"), (str, "a string"), (NetNode, "a node of the network"),
        (Fields, "a record"), (Array, "an array"), ((Closure, Builtin), "a function"), (LoadedNetwork, "a network"),
    )
    return next((text for kind, text in kinds if isinstance(value, kind)), type(value).__name__)


def parameters_of(function: Any) -> tuple[str, ...]:
    """The names of a function's positional parameters, as far as they are known; at least one."""
    known = function.definition if isinstance(function, Closure) else function
    names = getattr(known, "parameters", ())
    return names or ("_",)


def check_length(characters: int) -> None:
    """Whether a string may be so long. Errors: ValueError if not."""
    if characters > LONGEST:
        raise ValueError(f"a string has at most {LONGEST:,} characters, this one would have {characters:,}")


__all__ = [
    "Array", "Builtin", "Applied", "Closure", "LoadedNetwork", "NetNode", "Fields", "Thunk", "check_length", "kind_of",
    "parameters_of",
]
