"""The source of modules: one class for each, in the terms of a target."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..graph.function import Node
from ..graph.names import numbered
from .tree import Expression, Layer, LoopSource, Module, Signature, Statement, several
from .walk import describe

Weights = dict[str, np.ndarray]
CallRow = str | Callable[..., str]  # a format of the operands and options, or a function of them
LayerRow = Callable[[Layer], tuple[str, Weights]]  # the constructor's call, and the weights by the target's names


class Writer(Protocol):
    """What writes a model as source.

    `network`: what builds the model in the source; `run`: the import and function that the test runs it with.
    """

    @property
    def network(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def requirements(self) -> str: ...

    def write(self, model: Node, title: str) -> tuple[str, Weights]:
        """The file `model.py`, and the weights by their names in it. Errors: PortError."""


@dataclass(frozen=True)
class Target:
    """A library for which modules are written.

    `header` begins the file; `module` is the format of a member that is a module, and `method` begins a class's method,
    from its arguments, and whether it is that of the model. `reserved`: names of the class, which members cannot have.
    `helpers`: functions that are written if calls use them. `load` ends the file: INPUTS in it are the text that
    `inputs` makes of the dimensions and types of the model's arguments. `run` is the test's function.
    """

    header: str
    base: str
    initializer: str
    no_members: tuple[str, ...]
    method: Callable[[list[str], bool], list[str]]
    module: str
    calls: Mapping[str, CallRow]
    layers: Mapping[str, LayerRow]
    helpers: Mapping[str, str]
    load: str
    run: str
    requirements: str
    reserved: str
    inputs: Callable[[list[Signature]], str] = str
    network: str = "Model"

    def write(self, model: Node, title: str) -> tuple[str, Weights]:
        """The file `model.py`, and the weights by their names in it. Errors: PortError."""
        source = Source(describe(model, self), self)
        return source.text(title), source.weights


class Source:
    """The classes of a model and its weights by their paths."""

    def __init__(self, module: Module, target: Target) -> None:
        self.target = target
        self.classes: dict[str, str] = {}  # the rest of a class -> its name: equal ones are written once
        self.weights: Weights = {}
        self.load = target.load.strip().replace("INPUTS", target.inputs(module.signatures))
        self._add(module, "")

    def text(self, title: str) -> str:
        """The file `model.py`."""
        classes = "\n\n\n".join(f"class {name}({self.target.base}):\n{body}" for body, name in self.classes.items())
        used = classes
        helpers: list[str] = []
        for name, body in reversed(list(self.target.helpers.items())):  # a function uses those before it
            if f"{name}(" in used:
                helpers.insert(0, body.strip())
                used += body
        parts = [f'"""{title}"""\n\n{self.target.header.strip()}', *helpers, classes]
        return "\n\n\n".join([*parts, self.load]) + "\n"

    def _add(self, module: Module, path: str) -> str:
        lines = []
        for name, part in module.members.items():
            if isinstance(part, Module):
                constructor = self.target.module.format(self._add(part, f"{path}{name}."))
            else:
                constructor, weights = self.target.layers[part.kind](part)
                self.weights |= {f"{path}{name}.{key}".rstrip("."): value for key, value in weights.items()}
            lines.append(f"self.{name} = {constructor}")
        body = "\n\n".join(textwrap.indent("\n".join(part), "    ") for part in (
            [self.target.initializer, *(f"    {line}" for line in lines or self.target.no_members)],
            [*self.target.method(module.arguments, not path), *self._statements(module)],
        ))
        title = "".join(word[:1].upper() + word[1:] for word in module.title.split("_"))
        taken = {*self.classes.values(), *(("Model", "Path", "F", *self.target.helpers) if path else ())}
        return self.classes.setdefault(body, numbered(title, taken))

    def _statements(self, module: Module) -> Iterator[str]:
        yield from (f"    {line}" if line else "" for line in self._lines(module.body, module.results))

    def _lines(self, statements: Sequence[Statement], results: Sequence[Expression]) -> Iterator[str]:
        """Statements, and the return of results; what is assigned last is returned at once."""
        value = ", ".join(map(self._outer, results))
        match list(statements):
            case [*others, (name, expression)] if [name] == results:
                statements, value = others, self._outer(expression)
        for statement in statements:
            if isinstance(statement, LoopSource):
                yield from self._step(statement)
            else:
                yield f"{statement[0]} = {self._outer(statement[1])}"
        yield f"return {value}"

    def _step(self, step: LoopSource) -> Iterator[str]:
        states = step.states[0] if len(step.states) == 1 else "states"
        yield ""
        yield f"def {step.name}({', '.join([states, *step.samples])}):"
        if len(step.states) > 1:
            yield f"    {', '.join(step.states)} = states"
        results = several(step.next_states), several(step.results)
        yield from (f"    {line}" for line in self._lines(step.body, results))
        yield ""

    def _outer(self, value: Expression) -> str:
        """An expression without the parentheses that only its use in another one needs."""
        text = self._expression(value)
        row = "" if isinstance(value, str) else self.target.calls.get(value.op, "")
        return text[1:-1] if isinstance(row, str) and row.startswith("(") else text

    def _expression(self, value: Expression) -> str:
        if isinstance(value, str):
            return value
        operands = [self._expression(v) for v in value.operands]
        if value.op == "member":
            name = f"self.{value.options['name']}"
            return f"{name}({', '.join(operands)})" if operands else self.target.calls["array"].format(name)  # type: ignore[union-attr]
        row = self.target.calls[value.op]
        return row.format(*operands, **value.options) if isinstance(row, str) else row(*operands, **value.options)


def method(name: str) -> Callable[[list[str], bool], list[str]]:
    """What begins the method of this name that takes the arguments as they are."""
    return lambda arguments, _: [f"def {name}({', '.join(['self', *arguments])}):"]


def arguments(*positional: object, **named: object) -> str:
    """The text of arguments.

    >>> arguments(3, [2, 2], padding=1)
    '3, (2, 2), padding=1'
    """
    return ", ".join([*map(_literal, positional), *(f"{k}={_literal(v)}" for k, v in named.items())])


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(tuple(value) if isinstance(value, list) else value)


def is_number(text: str) -> bool:
    """True for the text of a scalar, which some functions do not take in place of an array."""
    try:
        float(text)
    except ValueError:
        return False
    return True


__all__ = ["Source", "Target", "Weights", "Writer", "arguments", "is_number", "method"]
