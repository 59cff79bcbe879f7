"""Statements of NDL: assignments, sections and macros, as they are written."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...configuration import Place, Text
from ..language.lexer import CLOSING, Token, Tokens


@dataclass(frozen=True)
class NdlTerm:
    """A word, number, string or list, or a call (`arguments` is not None); `number`: what CNTK counts it as."""

    text: str
    kind: str
    place: Place
    arguments: tuple[NdlTerm, ...] | None = None
    named: dict[str, NdlTerm] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True)
class Macro:
    """``name (parameters) { statements }``."""

    name: str
    parameters: tuple[str, ...]
    statements: dict[str, NdlTerm]
    names: dict[str, str]


@dataclass
class Section:
    """Statements, in order: the value of each name, as written names say it."""

    statements: dict[str, NdlTerm] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)


class Reader(Tokens):
    """Reads texts; macros and the numbers of what has no name are common to all."""

    def __init__(self) -> None:
        self.macros: dict[str, Macro] = {}
        self.count = 0

    def read(self, text: Text) -> Section:
        """The statements of a text."""
        self.begin(text)
        section = self.statements()
        if self.token.kind != "end":
            raise self.unexpected("'name = value', or a macro")
        return section

    def is_word(self) -> bool:
        return self.token.kind in ("name", "keyword")

    def statements(self) -> Section:
        """Statements up to what is none."""
        section = Section()
        while True:
            while self.accept(";", ","):
                pass
            if not self.is_word():
                return section
            name = self.dotted(self.take())
            if self.at("(") and self.is_macro():
                self.macro(name)
            elif self.at("[", "{"):
                section.sections[name.text.lower()] = self.block(self.take())
            else:
                self.assignment(name, section)

    def dotted(self, token: Token) -> Token:
        """A name with the parts behind dots."""
        text = token.text
        while self.at(".") and self.tokens[self.next + 1].kind in ("name", "keyword"):
            self.take()
            text += "." + self.take().text
        return Token(token.kind, text, token.place, token.begins_line)

    def is_macro(self) -> bool:
        """Whether what stands in parentheses here are the parameters of a macro."""
        at = self.next
        while self.tokens[at].text != ")" and self.tokens[at].kind != "end":
            at += 1
        following = self.tokens[min(at + 1, len(self.tokens) - 1)]
        return following.kind == "symbol" and following.text in ("=", "{", "[")

    def macro(self, name: Token) -> None:
        self.expect("(")
        parameters = []
        while self.is_word():
            parameters.append(self.take().text.lower())
            if not self.accept(","):
                break
        self.expect(")")
        self.accept("=")
        opening = self.accept("[", "{")
        if opening is not None and self.tokens[self.next + 1].text != "(":
            body = self.block(opening)
            statements, names = body.statements, body.names
        else:
            statements, names = {name.text.lower(): self.expression()}, {name.text.lower(): name.text}
            if opening is not None:
                self.accept(";")
                self.expect(CLOSING[opening.text])
        if not statements:
            raise name.place.error(f"the macro '{name.text}' has no statements")
        self.macros[name.text.lower()] = Macro(name.text, tuple(parameters), statements, names)

    def block(self, opening: Token) -> Section:
        section = self.statements()
        closing = CLOSING[opening.text]
        if not self.accept(closing):
            if self.token.kind == "end":
                raise opening.place.error(f"this '{opening.text}' is not closed by '{closing}'")
            raise self.unexpected(f"'name = value', a macro, or '{closing}'")
        return section

    def assignment(self, name: Token, section: Section) -> None:
        self.expect("=")
        key = name.text.lower()
        if self.at("[") or (self.at("{") and self.tokens[self.next + 2].text == "="):
            section.sections[key] = self.block(self.take())
            return
        if key in section.statements and key not in ("load", "run"):
            raise name.place.error(f"'{name.text}' is assigned a second time")
        section.statements[key] = self.expression()
        section.names[key] = name.text

    def expression(self) -> NdlTerm:
        """A value: calls and literals that have no name are counted, as CNTK does for names like unnamed12."""
        token = self.take()
        if token.kind == "symbol" and token.text in ("(", "{"):
            return self.listed(token)
        if token.text == "-" and self.token.kind == "number":
            self.count += 1
            number = self.take()
            return NdlTerm("-" + number.text, "number", token.place)
        if token.kind in ("number", "string"):
            self.count += 1
            text = token.text[1:-1] if token.kind == "string" else token.text
            return NdlTerm(text, token.kind, token.place)
        if token.kind not in ("name", "keyword"):
            self.next -= token.kind != "end"
            raise self.unexpected("a value")
        return self.word(token)

    def word(self, token: Token) -> NdlTerm:
        """A name, with dots, or a call."""
        token = self.dotted(token)
        term = NdlTerm(token.text, "word", token.place)
        if self.accept("("):
            term = self.call(token)
        while self.accept(":"):
            following = self.expression()
            before = term.arguments or () if term.kind == "list" else (term,)
            term = NdlTerm("", "list", token.place, (*before, following))
        return term

    def call(self, name: Token) -> NdlTerm:
        arguments: list[NdlTerm] = []
        named: dict[str, NdlTerm] = {}
        while not self.at(")"):
            if self.is_word() and self.tokens[self.next + 1].text == "=":
                option = self.take()
                self.take()
                named[option.text] = self.expression()
            else:
                arguments.append(self.expression())
            if not self.accept(",", ";"):
                break
        self.expect(")")
        self.count += 1
        return NdlTerm(name.text, "call", name.place, tuple(arguments), named, self.count)

    def listed(self, opening: Token) -> NdlTerm:
        elements: list[NdlTerm] = []
        closing = CLOSING[opening.text]
        while not self.at(closing):
            elements.append(self.expression())
            if not self.accept(",", ";", ":"):
                break
        self.expect(closing)
        return NdlTerm("", "list", opening.place, tuple(elements))


__all__ = ["NdlTerm", "Macro", "Reader", "Section"]
