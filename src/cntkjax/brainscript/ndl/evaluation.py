"""The evaluation of NDL: macros here, functions by the library of BrainScript."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...configuration import ConfigError, Place
from ..language.evaluator import ScriptEvaluator, did_you_mean
from ..language.values import Array, Closure, Thunk
from ..network import ROLES
from ..nodes import NetNode
from .names import FUNCTIONS, OPTIONS, SPECIAL, VALUES
from .reader import Macro, NdlTerm

DEPTH = 60  # of macros within macros


@dataclass(eq=False)
class Frame:
    """The variables of the description, or of one use of a macro; `prefix`: what precedes the names of its nodes."""

    prefix: str
    statements: dict[str, NdlTerm]
    names: dict[str, str]
    outer: Frame | None = None  # where the macro is used
    values: dict[str, Any] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)

    def node(self, name: str) -> NetNode | None:
        """The node that is the value of a variable, if one is."""
        value = as_node(self.values.get(name))
        return value if isinstance(value, NetNode) else None


@dataclass(frozen=True)
class Use:
    """The value of a macro: its last variable, or that of its own name; the others are read with a dot."""

    frame: Frame
    value: Any


class Word(str):
    """A word that no variable has as its name: an option's value, or an unknown name."""

    place: Place

    def __new__(cls, text: str, place: Place) -> Word:
        word = super().__new__(cls, text)
        word.place = place
        return word


class Run:
    """The evaluation of statements."""

    def __init__(self, macros: dict[str, Macro], evaluator: ScriptEvaluator) -> None:
        self.macros = macros
        self.evaluator = evaluator
        library = evaluator.library
        self.functions = {name.lower(): name for name in library.members} | {
            name.lower(): f"NDL.{name}" for name in evaluator.force(library.members["NDL"]).members
        }
        self.depth = 0
        self.uses: list[Frame] = []

    def all(self, frame: Frame) -> None:
        """Evaluate all statements, in order."""
        for key in list(frame.statements):
            if key not in SPECIAL or frame.statements[key].kind not in ("word", "list"):
                self.variable(frame, key)

    def variable(self, frame: Frame, key: str) -> Any:
        """The value of a variable of a frame."""
        if key not in frame.values:
            expression = frame.statements[key]
            if key in frame.running:
                message = f"'{frame.names[key]}' depends on itself: only PastValue and FutureValue may close a loop"
                raise self.evaluator.error(expression.place, message)
            frame.running.add(key)
            frame.values[key] = self.value(frame, expression, frame.prefix + _final_name(frame, key))
        return frame.values[key]

    def value(self, frame: Frame, expression: NdlTerm, name: str) -> Any:
        """The value of an expression; a node that it creates gets the name."""
        if expression.kind == "call":
            return self.call(frame, expression, name)
        if expression.kind == "list":
            elements = [self.value(frame, each, name) for each in expression.arguments or ()]
            return Array([Thunk(None, None, name, as_node(each)) for each in elements])
        if expression.kind == "number":
            return float(expression.text)
        return expression.text if expression.kind == "string" else self.word(frame, expression)

    def word(self, frame: Frame, expression: NdlTerm) -> Any:
        """A variable, a member of a macro's value, or a word that stands for itself."""
        key = expression.text.lower()
        first, *rest = (key,) if key in frame.statements or key in frame.values else key.split(".")
        if first not in frame.values and first not in frame.statements:
            if frame.outer is not None:  # as bnTimeConst in the macros of CNTK's ResNet_34.ndl
                return self.word(frame.outer, expression)
            if rest:
                raise self.unknown(expression.text, expression.place, frame)
            return {"true": True, "false": False}.get(first, Word(expression.text, expression.place))
        value = self.variable(frame, first)
        for part in rest:
            if not isinstance(value, Use) or (part not in value.frame.values and part not in value.frame.statements):
                known = value.frame.statements if isinstance(value, Use) else ()
                message = f"'{expression.text}': there is no '{part}' in it{did_you_mean(part, known)}"
                raise self.evaluator.error(expression.place, message)
            value = self.variable(value.frame, part)
        return value

    def unknown(self, name: str, place: Place, frame: Frame) -> ConfigError:
        """The error for a name that nothing has, at the place where it is written."""
        known = {*frame.names.values(), *frame.values} - {name.lower()}  # perhaps given to this macro's parameter
        return self.evaluator.error(place, f"unknown name '{name}'{did_you_mean(name, known)}")

    def call(self, frame: Frame, call: NdlTerm, name: str) -> Any:
        """The value of a macro, or the node that a function makes."""
        key = call.text.lower()
        self.evaluator.calls.append((call.text, call.place))
        try:
            if key in self.macros:
                return self.use(frame, call, self.macros[key], name)
            return self.node(frame, call, name)
        finally:
            self.evaluator.calls.pop()

    def use(self, frame: Frame, call: NdlTerm, macro: Macro, name: str) -> Use:
        """The value of a macro for arguments; those beyond its parameters are ignored."""
        arguments = [self.argument(frame, each) for each in call.arguments or ()]
        if len(arguments) < len(macro.parameters):
            message = f"the macro '{macro.name}' has {len(macro.parameters)} parameters, {len(arguments)} are given"
            raise self.evaluator.error(call.place, message)
        if self.depth >= DEPTH:
            message = f"more than {DEPTH} macros within each other: does the recursion end?"
            raise self.evaluator.error(call.place, message)
        inner = Frame(f"{name}.", macro.statements, macro.names, frame)
        inner.values = dict(zip(macro.parameters, arguments, strict=False))
        inner.values |= {option.lower(): self.value(frame, each, name) for option, each in call.named.items()}
        self.uses.append(inner)
        self.depth += 1
        self.all(inner)
        self.depth -= 1
        result = macro.name.lower() if macro.name.lower() in macro.statements else list(macro.statements)[-1]
        found = Use(inner, self.variable(inner, result))
        if tag := inner.values.get("tag"):
            self.tagged(found, str(tag), call)
        return found

    def tagged(self, use: Use, tag: str, call: NdlTerm) -> None:
        node, role = as_node(use), {"criteria": "criterion", "eval": "evaluation"}.get(tag.lower(), tag.lower())
        if role not in ROLES or not isinstance(node, NetNode):
            raise self.evaluator.error(call.place, f"there is no tag '{tag}': {', '.join(ROLES)}")
        node.tag = role

    def argument(self, frame: Frame, expression: NdlTerm) -> Any:
        """The value of an argument; a node that it creates has no name but a number."""
        return self.value(frame, expression, f"{frame.prefix}unnamed{expression.number}")

    def node(self, frame: Frame, call: NdlTerm, name: str) -> Any:
        """What a function of the library makes."""
        function = self.function(call)
        if isinstance(function, Closure) and function.definition.name in ("PastValue", "FutureValue"):
            call = _without_columns(call)
        arguments = list(call.arguments or ())
        if isinstance(function, Closure) and function.definition.name == "RowStack":
            arguments = [NdlTerm("", "list", call.place, tuple(arguments))]
        thunks = [Thunk(self.later(frame, each, positional=True), None, name) for each in arguments]
        named = {self.option(function, option): self.later(frame, each) for option, each in call.named.items()}
        known = {option: Thunk(value, None, name) for option, value in named.items() if option}
        return self.apply(function, thunks, known, name, call)

    def later(self, frame: Frame, expression: NdlTerm, positional: bool = False) -> Any:
        """A function that computes the value of an argument when it is needed; only options may be words."""

        def compute(path: str) -> Any:
            value = as_node(self.argument(frame, expression))
            if isinstance(value, Word):
                if positional and value.lower() not in ("max", "average"):
                    raise self.unknown(value, value.place, frame)
                return VALUES.get(value.lower(), str(value))
            return value

        return compute

    def function(self, call: NdlTerm) -> Any:
        """The function of the library that NDL calls by this name."""
        key = call.text.lower()
        if key in ("convolution", "convolve") and len(call.arguments or ()) > 4:
            key = "convolution2d"
        key = FUNCTIONS.get(key, key).lower()
        if key not in self.functions:
            known = [*self.functions.values(), *(macro.name for macro in self.macros.values())]
            hint = did_you_mean(call.text, (name.removeprefix("NDL.") for name in known))
            raise self.evaluator.error(call.place, f"there is no function or macro '{call.text}'{hint}")
        value: Any = self.evaluator.library
        for part in self.functions[key].split("."):
            value = self.evaluator.member(value, part, call.place)
        return value

    def option(self, function: Any, option: str) -> str:
        """The name of an option as the library has it; nothing for one that the function ignores, as in CNTK."""
        if not isinstance(function, Closure):
            return ""
        names = (*function.definition.defaults, *function.definition.parameters)
        return {name.lower(): name for name in names}.get(OPTIONS.get(option.lower(), option).lower(), "")

    def apply(self, function: Any, arguments: list[Thunk], named: dict[str, Thunk], name: str, call: NdlTerm) -> Any:
        """Call the function; positional arguments beyond the required ones are the optional ones, in order."""
        if isinstance(function, Closure):
            required = len(function.definition.parameters)
            optional = [option for option in function.definition.defaults if option not in named]
            named |= dict(zip(optional, arguments[required:], strict=False))
            arguments = arguments[:required]
            if "imageLayout" in function.definition.defaults:
                named.setdefault("imageLayout", Thunk(None, None, name, "legacy"))
        return self.evaluator.apply(function, arguments, named, name, call.place)


def _without_columns(call: NdlTerm) -> NdlTerm:
    """A delay's arguments without the number of columns, which may stand second."""
    arguments = call.arguments or ()
    if len(arguments) > 2 and arguments[1].kind == "number" and arguments[2].kind in ("word", "call"):
        return NdlTerm(call.text, call.kind, call.place, (arguments[0], *arguments[2:]), call.named, call.number)
    return call


def as_node(value: Any) -> Any:
    """The value of a macro as what it stands for."""
    while isinstance(value, Use):
        value = value.value
    return value


def _final_name(frame: Frame, key: str) -> str:
    """The name of a variable: that of the last one that is only another name for it."""
    for other, expression in frame.statements.items():
        if expression.kind == "word" and expression.text.lower() == key and frame.statements[key].kind == "call":
            return frame.names[other]
    return frame.names[key]


__all__ = ["Frame", "Run", "as_node"]
