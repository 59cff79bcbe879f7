"""The syntax tree of BrainScript: expressions and the members of records."""

from __future__ import annotations

from dataclasses import dataclass

from ...configuration import Place


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression, and where it begins (for an operation: where its operator is)."""

    place: Place


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A number, a string, true or false."""

    value: float | str | bool


@dataclass(frozen=True, eq=False)
class Name(Expression):
    """A variable."""

    name: str


@dataclass(frozen=True, eq=False)
class Unary(Expression):
    """``-x``, ``+x``, ``!x``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, eq=False)
class Binary(Expression):
    """An infix operation."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class Conditional(Expression):
    """``if condition then yes else no``."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True, eq=False)
class Apply(Expression):
    """``function (arguments, name=value)``, with braces as well."""

    function: Expression
    arguments: tuple[Expression, ...]
    named: dict[str, Expression]


@dataclass(frozen=True, eq=False)
class Member(Expression):
    """``record.name``."""

    record: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Index(Expression):
    """``array[index]``."""

    array: Expression
    index: Expression


@dataclass(frozen=True, eq=False)
class RecordOf(Expression):
    """``{ name = value ... }``."""

    members: dict[str, Expression]


@dataclass(frozen=True, eq=False)
class ArrayOf(Expression):
    """``a : b : c`` (flat: operands that are arrays contribute their elements), or ``[| a ; b |]``, which nests."""

    elements: tuple[Expression, ...]
    flat: bool


@dataclass(frozen=True, eq=False)
class Range(Expression):
    """``array[first..last] (function)``, or ``name[i:first..last] = value`` as a member."""

    first: Expression
    last: Expression
    function: Expression


@dataclass(frozen=True, eq=False)
class Lambda(Expression):
    """``x => value``, or ``f (x, option=default) = value`` as a member."""

    parameters: tuple[str, ...]
    defaults: dict[str, Expression]
    body: Expression
    name: str


@dataclass(frozen=True, eq=False)
class New(Expression):
    """``new Type {...}``."""

    kind: str
    argument: Expression
