"""From tokens to a syntax tree, by recursive descent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...configuration import Place, Text
from . import syntax
from .lexer import CLOSING, Token, Tokens

Includer = Callable[[str, Place], Text]

_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", ".*", "/", "%"), ("**",))
DEPTH = 200  # of nested expressions


def parse_expression(text: Text, include: Includer) -> syntax.Expression:
    """A text that is one expression."""
    parser = _ScriptParser(text, include)
    expression = parser.expression()
    parser.expect("end")
    return expression


def parse_members(text: Text, include: Includer, files: tuple[str, ...] = ()) -> syntax.RecordOf:
    """A text that is the inside of a record.

    `include`: finds the text of an included file; `files`: the names of those that include this one.

    Errors: ConfigError with the place, what is there, and what was expected.
    """
    parser = _ScriptParser(text, include, files)
    record = parser.members(Place(text, 0))
    parser.expect("end")
    return record


class _ScriptParser(Tokens):
    """Reads expressions and records."""

    def __init__(self, text: Text, include: Includer, files: tuple[str, ...] = ()) -> None:
        self.begin(text)
        self.include = include
        self.files = files
        self.depth = 0

    def closing(self, opening: Token) -> None:
        """The bracket that closes this one."""
        wanted = CLOSING[opening.text]
        if not self.accept(wanted):
            if self.token.kind == "end" or self.at(*CLOSING.values()):
                message = f"this '{opening.text}' is not closed by '{wanted}': {self.token} comes first"
                raise opening.place.error(message)
            raise self.unexpected(f"'{wanted}', ',' or an operator")

    # Records

    def members(self, place: Place) -> syntax.RecordOf:
        """Assignments up to what is none."""
        assigned: dict[str, syntax.Expression] = {}
        while True:
            while self.accept(";", ","):
                pass
            if word := self.accept("include"):
                members = self.included()
                if not isinstance(members, syntax.RecordOf):
                    raise word.place.error("the file has an expression here, not members of a record")
                assigned |= members.members
            elif self.token.kind == "name" or (self.at("array") and self.is_assignment()):
                name = self.take()
                if name.text in assigned:
                    raise name.place.error(f"'{name.text}' is assigned a second time in the same record")
                assigned[name.text] = self.assigned(name)
                self.separated()
            else:
                return syntax.RecordOf(place, assigned)

    def is_assignment(self) -> bool:
        return self.tokens[self.next + 1].text == "="

    def separated(self) -> None:
        """A member ends at a line's end, a semicolon, or where its record ends."""
        if not (self.token.begins_line or self.at(";", ",", "}", "]") or self.token.kind == "end"):
            raise self.unexpected("an operator, ';' or a new line")

    def included(self) -> syntax.Expression:
        """What a file has: an expression in brackets, or members, of which later ones of the same name are errors."""
        path = self.take()
        if path.kind != "string":
            raise path.place.error("include needs the name of a file, in quotes")
        text = self.include(path.text[1:-1], path.place)
        if text.name in self.files:
            raise path.place.error(f"{text.name} includes itself: {' > '.join((*self.files, text.name))}")
        parser = _ScriptParser(text, self.include, (*self.files, text.name))
        content = parser.expression() if parser.at("(", "{", "[") else parser.members(Place(text, 0))
        parser.expect("end")
        return content

    def assigned(self, name: Token) -> syntax.Expression:
        """What stands behind the name of a member."""
        if self.accept("="):
            return self.expression()
        if opening := self.accept("["):
            return self.range_of(name, opening)
        if opening := self.accept("(", "{"):
            parameters, defaults = self.parameters(opening)
            self.expect("=")
            return syntax.Lambda(name.place, parameters, defaults, self.expression(), name.text)
        raise self.unexpected("'=', or the parameters of a function")

    def range_of(self, name: Token, opening: Token) -> syntax.Range:
        """``[i:first..last] = value``."""
        index = self.expect("name")
        self.expect(":")
        bounds = self.bounds(opening)
        self.expect("=")
        body = self.expression()
        return syntax.Range(name.place, *bounds, syntax.Lambda(name.place, (index.text,), {}, body, name.text))

    def bounds(self, opening: Token) -> tuple[syntax.Expression, syntax.Expression]:
        """``first..last]``."""
        first = self.operation(0)
        self.expect("..")
        last = self.operation(0)
        self.closing(opening)
        return first, last

    def parameters(self, opening: Token) -> tuple[tuple[str, ...], dict[str, syntax.Expression]]:
        """The parameters of a function, and the defaults of the optional ones."""
        names: list[str] = []
        defaults: dict[str, syntax.Expression] = {}
        while not self.at(CLOSING[opening.text]):
            name = self.expect("name")
            if name.text in names or name.text in defaults:
                raise name.place.error(f"the function has two parameters '{name.text}'")
            if self.accept("="):
                defaults[name.text] = self.expression()
            else:
                names.append(name.text)
            if not self.accept(",", ";"):
                break
        self.closing(opening)
        return tuple(names), defaults

    # Expressions, from the loosest operator to the tightest

    def expression(self) -> syntax.Expression:
        """Any expression; ``:`` binds loosest."""
        first = self.deeper(self.value)
        if not self.at(":"):
            return first
        elements, place = [first], self.token.place
        while self.accept(":"):
            elements.append(self.deeper(self.value))
        return syntax.ArrayOf(place, tuple(elements), flat=True)

    def value(self) -> syntax.Expression:
        """An expression without ``:``."""
        if self.token.kind == "name" and self.tokens[self.next + 1].text == "=>":
            name = self.take()
            self.take()
            return syntax.Lambda(name.place, (name.text,), {}, self.deeper(self.value), "a lambda")
        return self.operation(0)

    def deeper(self, parse: Callable[..., syntax.Expression], *arguments: int) -> syntax.Expression:
        """A part that may nest; levels are counted."""
        self.depth += 1
        if self.depth > DEPTH:
            raise self.token.place.error(f"expressions are nested more than {DEPTH} deep here")
        part = parse(*arguments)
        self.depth -= 1
        return part

    def operation(self, level: int) -> syntax.Expression:
        """A chain of operators of one precedence, from left to right."""
        if level == len(_LEVELS):
            return self.unary()
        left = self.operation(level + 1)
        while operator := self.accept(*_LEVELS[level]):
            left = syntax.Binary(operator.place, operator.text, left, self.operation(level + 1))
        return left

    def unary(self) -> syntax.Expression:
        if operator := self.accept("-", "+", "!"):
            return syntax.Unary(operator.place, operator.text, self.deeper(self.unary))
        if word := self.accept("if"):
            condition = self.deeper(self.value)
            self.expect("then")
            yes = self.deeper(self.value)
            self.expect("else")
            return syntax.Conditional(word.place, condition, yes, self.deeper(self.value))
        if word := self.accept("new"):
            kind = self.expect("name")
            return syntax.New(word.place, kind.text, self.deeper(self.unary))
        return self.postfix(self.primary())

    def postfix(self, value: syntax.Expression) -> syntax.Expression:
        """Calls, members, indices and ``with``, from left to right."""
        while True:
            if opening := self.accept("(", "{"):
                value = self.call(value, opening)
            elif self.at("[") and not self.token.begins_line:
                opening = self.take()
                value = syntax.Index(opening.place, value, self.expression())
                self.closing(opening)
            elif dot := self.accept("."):
                value = syntax.Member(dot.place, value, self.expect("name").text)
            elif word := self.accept("with"):
                value = syntax.Binary(word.place, "with", value, self.deeper(self.unary))
            else:
                return value

    def call(self, function: syntax.Expression, opening: Token) -> syntax.Apply:
        """The arguments of a call."""
        arguments: list[syntax.Expression] = []
        named: dict[str, syntax.Expression] = {}
        while not self.at(CLOSING[opening.text]):
            token = self.token
            if token.kind == "name" and self.tokens[self.next + 1].text == "=":
                self.next += 2
                if token.text in named:
                    raise token.place.error(f"the argument '{token.text}' is given twice")
                named[token.text] = self.expression()
            else:
                arguments.append(self.expression())
            if not self.accept(",", ";"):
                break
        self.closing(opening)
        return syntax.Apply(opening.place if isinstance(function, syntax.Apply) else function.place, function,
                           tuple(arguments), named)

    def primary(self) -> syntax.Expression:
        """A literal, a name, or something in brackets."""
        token = self.take()
        if token.kind == "number":
            return syntax.Literal(token.place, float(token.text))
        if token.kind == "string":
            return syntax.Literal(token.place, token.text[1:-1])
        if token.kind == "name":
            return syntax.Name(token.place, token.text)
        if token.kind == "keyword" and token.text in ("true", "false"):
            return syntax.Literal(token.place, token.text == "true")
        if token.kind == "keyword" and token.text == "array":
            return self.array(token)
        if token.kind == "keyword" and token.text == "include":
            return self.included()
        if token.kind == "symbol" and token.text in ("(", "{", "[", "[|"):
            return self.bracketed(token)
        self.next -= token.kind != "end"
        raise self.unexpected("an expression")

    def bracketed(self, opening: Token) -> syntax.Expression:
        """``(expression)``, a record, or ``[| a ; b |]``."""
        if opening.text == "[|":
            return self.nested_array(opening)
        parse = self.expression if opening.text == "(" else partial(self.members, opening.place)
        inner = self.deeper(parse)
        self.closing(opening)
        return inner

    def nested_array(self, opening: Token) -> syntax.ArrayOf:
        elements = []
        while not self.at("|]"):
            elements.append(self.value())
            if not (self.accept(";", ",", ":") or self.token.begins_line):
                break
        self.expect("|]")
        return syntax.ArrayOf(opening.place, tuple(elements), flat=False)

    def array(self, word: Token) -> syntax.Range:
        """``array[first..last] (function)``."""
        bounds = self.bounds(self.expect("["))
        opening = self.expect("(")
        function = self.expression()
        self.closing(opening)
        return syntax.Range(word.place, *bounds, function)


__all__ = ["Includer", "parse_expression", "parse_members"]
