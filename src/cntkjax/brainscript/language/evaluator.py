"""The evaluator of BrainScript: lazy, without side effects other than the nodes it creates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ...configuration import ConfigError, Place
from ...configuration.source import nearest
from . import syntax
from .operators import binary, unary
from .values import Applied, Array, Builtin, Closure, Fields, LoadedNetwork, NetNode, Thunk, kind_of, parameters_of

STEPS = 300_000  # expressions that a description may evaluate; the largest public ones need 43,000
DEPTH = 3_000  # of calls within calls
ELEMENTS = 100_000  # of an array


class ScriptEvaluator:
    """Evaluates expressions.

    `outside`: finds the value of a name that no record defines (a key of the configuration), or None;
    `constructors`: what ``new Type`` calls, by type; `members_of`: the members that nodes have, by name;
    `is_library`: whether a place is in a text that users do not see. `library`: the outermost scope.
    """

    def __init__(
        self,
        outside: Callable[[str], Any],
        constructors: dict[str, Callable[[Applied], Any]],
        members_of: dict[str, Callable[[NetNode], Any]],
        is_library: Callable[[Place], bool],
    ) -> None:
        self.library = Fields(None)
        self.outside = outside
        self.constructors = constructors
        self.members_of = members_of
        self.is_library = is_library
        self.calls: list[tuple[str, Place]] = []
        self.steps = 0
        self._kinds: dict[type, Callable[[Any, Fields, str], Any]] = {
            syntax.Literal: lambda e, scope, path: e.value,
            syntax.Name: self._name,
            syntax.Unary: self._unary,
            syntax.Binary: partial(binary, self),
            syntax.Conditional: self._conditional,
            syntax.Apply: self._call,
            syntax.Member: self._member,
            syntax.Index: self._index,
            syntax.RecordOf: self._record,
            syntax.ArrayOf: self._array,
            syntax.Range: self._range,
            syntax.Lambda: lambda e, scope, path: Closure(e, scope),
            syntax.New: self._new,
        }

    # Errors

    def error(self, place: Place, message: str) -> ConfigError:
        """An error at a place, with the calls that led there; within the library, at the user's innermost call."""
        place, chain = self.origin(place)
        return place.error(message, chain)

    def origin(self, place: Place) -> tuple[Place, tuple[tuple[str, Place], ...]]:
        """The innermost place that the user has written, and the calls that led there."""
        calls = [(f"'{name}'", at) for name, at in reversed(self.calls) if not self.is_library(at)]
        if self.is_library(place) and calls:
            return calls[0][1], tuple(calls[:8])
        return place, tuple(calls[:8])

    def unknown(self, place: Place, what: str, name: str, known: Iterable[str]) -> ConfigError:
        """An error that names what is similar."""
        return self.error(place, f"{what} '{name}'{did_you_mean(name, known)}")

    # Evaluation

    def evaluate(self, expression: syntax.Expression, scope: Fields, path: str) -> Any:
        """The value of an expression; a node that it creates gets the name `path`."""
        self.steps += 1
        if self.steps > STEPS:
            raise self.error(expression.place, f"the description takes more than {STEPS:,} steps: does it end?")
        return self._kinds[type(expression)](expression, scope, path)

    def force(self, thunk: Thunk) -> Any:
        """The value of a thunk, evaluated once."""
        expression = thunk.expression
        if expression is None:
            return thunk.value
        if thunk.running:
            place = self.calls[-1][1] if callable(expression) else expression.place
            raise self.error(
                place,
                f"'{thunk.path}' depends on itself: only PastValue and FutureValue (and other delays) may close a loop",
            )
        thunk.running = True
        try:
            if callable(expression):
                thunk.value = expression(thunk.path)
            else:
                thunk.value = self.evaluate(expression, thunk.scope, thunk.path)  # type: ignore[arg-type]
        finally:
            thunk.running = False
        thunk.expression = thunk.scope = None
        return thunk.value

    def expect(self, kind: type | tuple[type, ...], value: Any, place: Place, what: str) -> Any:
        """The value, if it is of this kind."""
        if not isinstance(value, kind):
            raise self.error(place, f"expected {what} here, this is {kind_of(value)}")
        return value

    def integer(self, value: Any, place: Place, what: str) -> int:
        """A number without a fraction."""
        number = self.expect((float, bool), value, place, what)
        if number != number or number in (float("inf"), float("-inf")) or int(number) != number:
            raise self.error(place, f"expected {what} here, {number} is no integer")
        return int(number)

    def call_library(self, name: str, values: list[Any], path: str, place: Place) -> Any:
        """A function of the library, for values."""
        function: Any = self.library
        for part in name.split("."):
            function = self.member(function, part, place)
        return self.apply(function, [Thunk(None, None, path, value) for value in values], {}, path, place)

    def elements(self, value: Any) -> list[Any]:
        """The elements of an array; another value is an array of one."""
        return [self.force(element) for element in value.elements] if isinstance(value, Array) else [value]

    # One method for each kind of expression

    def _name(self, expression: syntax.Name, scope: Fields, path: str) -> Any:
        thunk = scope.find(expression.name)
        if thunk is not None:
            return self.force(thunk)
        value = self.outside(expression.name)
        if value is None:
            raise self.unknown(expression.place, "unknown name", expression.name, scope.names())
        return value

    def _unary(self, expression: syntax.Unary, scope: Fields, path: str) -> Any:
        return unary(self, expression, self.evaluate(expression.operand, scope, f"{path}.Args[0]"), scope, path)

    def _conditional(self, expression: syntax.Conditional, scope: Fields, path: str) -> Any:
        condition = self.evaluate(expression.condition, scope, path)
        self.expect(bool, condition, expression.condition.place, "a truth value (for nodes there is BS.Boolean.If)")
        return self.evaluate(expression.yes if condition else expression.no, scope, path)

    def _call(self, expression: syntax.Apply, scope: Fields, path: str) -> Any:
        function = self.evaluate(expression.function, scope, path)
        named = {name: Thunk(value, scope, f"{path}.{name}") for name, value in expression.named.items()}
        names = parameters_of(function)
        arguments = enumerate(expression.arguments)
        thunks = [Thunk(a, scope, f"{path}.{names[min(i, len(names) - 1)]}") for i, a in arguments]
        return self.apply(function, thunks, named, path, expression.place)

    def apply(self, function: Any, arguments: list[Thunk], named: dict[str, Thunk], path: str, place: Place) -> Any:
        """The value of a function for arguments."""
        self.expect((Closure, Builtin), function, place, "a function")
        name = function.definition.name if isinstance(function, Closure) else function.name
        if len(self.calls) >= DEPTH:
            raise self.error(place, f"more than {DEPTH} calls within each other: does the recursion end?")
        self.calls.append((name, place))
        try:
            if isinstance(function, Builtin):
                return function.call(Applied(self, arguments, named, path, place))
            return self._enter(function, arguments, named, path, place)
        finally:
            self.calls.pop()

    def _enter(
        self, function: Closure, arguments: list[Thunk], named: dict[str, Thunk], path: str, place: Place,
    ) -> Any:
        definition = function.definition
        frame = Fields(function.scope, path, is_call=True)
        frame.members.update(zip(definition.parameters, arguments, strict=False))
        known = dict.fromkeys((*definition.parameters, *definition.defaults))
        for name, value in named.items():
            if name in frame.members:
                raise self.error(place, f"'{definition.name}' is given '{name}' by its place, too")
            if name not in known:
                raise self.unknown(place, f"'{definition.name}' has no further argument", name, known)
            frame.members[name] = value
        if len(arguments) > len(definition.parameters) or any(p not in frame.members for p in definition.parameters):
            hides = function.scope is not self.library and definition.name in self.library.members
            raise self.error(place, _arity(definition, len(arguments)) + "; it hides the library's" * hides)
        for name, default in definition.defaults.items():
            if name not in frame.members:
                frame.members[name] = Thunk(default, frame, f"{path}.{name}")
        return self.evaluate(definition.body, frame, path)

    def _member(self, expression: syntax.Member, scope: Fields, path: str) -> Any:
        value = self.evaluate(expression.record, scope, path)
        return self.member(value, expression.name, expression.place)

    def member(self, value: Any, name: str, place: Place) -> Any:
        """A member of a record, of a network, or of a node or number (their dimensions)."""
        if isinstance(value, Fields):
            if name in value.members:
                return self.force(value.members[name])
            raise self.unknown(place, "the record has no member", name, value.members)
        if isinstance(value, LoadedNetwork):
            nodes = {escaped(known): node for known, node in value.nodes.items()}
            if escaped(name) in nodes:
                return nodes[escaped(name)]
            raise self.unknown(place, "the network has no node", name, nodes)
        if isinstance(value, NetNode) and name in self.members_of:
            return self.members_of[name](value)
        if isinstance(value, float | Array) and name in ("dim", "shape"):
            return value
        raise self.error(place, f"{kind_of(value)} has no member '{name}'")

    def _index(self, expression: syntax.Index, scope: Fields, path: str) -> Any:
        array = self.expect(Array, self.evaluate(expression.array, scope, path), expression.array.place, "an array")
        at = self.integer(self.evaluate(expression.index, scope, path), expression.index.place, "an index")
        last = array.first + len(array.elements) - 1
        if not array.first <= at <= last:
            raise self.error(expression.index.place, f"the index {at} is outside the array's, {array.first} to {last}")
        return self.force(array.elements[at - array.first])

    def _record(self, expression: syntax.RecordOf, scope: Fields, path: str) -> Fields:
        record = Fields(scope, path)
        for name, value in expression.members.items():
            record.members[name] = Thunk(value, record, f"{path}.{name}" if path else name)
        return record

    def _array(self, expression: syntax.ArrayOf, scope: Fields, path: str) -> Array:
        thunks = [Thunk(e, scope, f"{path}[{i}]") for i, e in enumerate(expression.elements)]
        if not expression.flat:
            return Array(thunks)
        elements: list[Thunk] = []
        for thunk in thunks:
            value = self.force(thunk)
            elements += value.elements if isinstance(value, Array) else [thunk]
        return Array(elements)

    def _range(self, expression: syntax.Range, scope: Fields, path: str) -> Array:
        first, last = (
            self.integer(self.evaluate(bound, scope, path), bound.place, "an index")
            for bound in (expression.first, expression.last)
        )
        if last - first >= ELEMENTS:
            raise self.error(expression.place, f"an array of {last - first + 1:,} elements; {ELEMENTS:,} are allowed")
        function = self.evaluate(expression.function, scope, path)
        self.expect(Closure, function, expression.function.place, "a function of the index")
        return Array([self._element(function, i, f"{path}[{i}]") for i in range(first, last + 1)], first)

    def _element(self, function: Closure, index: int, path: str) -> Thunk:
        """Element `index` of an array that a function computes."""
        frame = Fields(function.scope, path, is_call=True)
        frame.members[function.definition.parameters[0]] = Thunk(None, None, path, float(index))
        return Thunk(function.definition.body, frame, path)

    def _new(self, expression: syntax.New, scope: Fields, path: str) -> Any:
        if expression.kind not in self.constructors:
            raise self.unknown(expression.place, "there is no type", expression.kind, self.constructors)
        argument = Thunk(expression.argument, scope, "inputs" if expression.kind == "ComputationNode" else path)
        return self.constructors[expression.kind](Applied(self, [argument], {}, path, expression.place))


def escaped(name: str) -> str:
    """The name under which BrainScript reads a node of another network."""
    return name.replace(".", "_").replace("[", "_").replace("]", "_")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for the most similar name, or nothing."""
    close = nearest(name, (each for each in known if not each.startswith("_")))
    return f": did you mean '{close}'?" if close else ""


def _arity(definition: syntax.Lambda, count: int) -> str:
    wanted = ", ".join((*definition.parameters, *(f"{name}=..." for name in definition.defaults)))
    return f"'{definition.name}' has {len(definition.parameters)} positional arguments, {count} are given: ({wanted})"


__all__ = ["ScriptEvaluator", "did_you_mean", "escaped"]
