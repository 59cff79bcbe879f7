"""The table of operations: what builds each one, and which options it has."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..nodes import NetNode

F = TypeVar("F", bound=Callable[..., Any])
Operands = Callable[[list[NetNode]], list[NetNode]]


@dataclass(frozen=True)
class Operation:
    """An operation of CNTK's network descriptions.

    `build`: called with the package (or what records calls of it), the inputs, a keyword `name` and the options, it
    returns a variable or function. `options`: the defaults, by name. `delays`: it may close a loop. `sequences`: its
    inputs have to be sequences. `operands`: the nodes that `build` gets instead of the inputs.
    """

    build: Callable[..., Any]
    options: dict[str, Any]
    delays: bool = False
    sequences: bool = False
    operands: Operands | None = None


OPERATIONS: dict[str, Operation] = {}


def operation(
    *names: str, delays: bool = False, sequences: bool = False, operands: Operands | None = None,
) -> Callable[[F], F]:
    """Enter a function into the table; its keyword-only parameters other than `name` are the options."""

    def enter(build: F) -> F:
        parameters = inspect.signature(build).parameters.values()
        options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "name"}
        for name in names:
            OPERATIONS[name] = Operation(build, options, delays, sequences or delays, operands)
        return build

    return enter


def direct(function: str, *order: int) -> Callable[..., Any]:
    """What calls a function of the package with the inputs, in the order of the description unless `order` is given."""

    def build(C: Any, *inputs: Any, name: str) -> Any:
        chosen = [inputs[i] for i in order] if order else inputs
        return operator.attrgetter(function)(C)(*chosen, name=name)

    return build


def integers(value: Any) -> list[int]:
    """A number or a list of numbers as integers."""
    return [int(each) for each in (value if isinstance(value, list) else [value])]


def shape(dimensions: Any) -> tuple[int, ...]:
    """A shape as CNTK's Python API writes it, last dimension first; 0 is inferred."""
    return tuple(reversed([-1 if each == 0 else each for each in integers(dimensions)]))


def axis(number: float) -> int:
    """A static axis, counted from 1 at the fastest, as Python counts it from the last."""
    return -int(number)


def filled(value: Any, rank: int, last: Any) -> list[Any]:
    """One value for each of `rank` axes, last axis first: a single one is repeated, missing ones are `last`."""
    values = list(value) if isinstance(value, list) else [value] * rank
    return list(reversed((values + [last] * rank)[:rank]))


__all__ = ["OPERATIONS", "Operation", "axis", "direct", "filled", "integers", "operation", "shape"]
