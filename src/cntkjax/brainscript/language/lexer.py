"""Tokens of BrainScript."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...configuration import ConfigError, Place, Text

_BLANK = re.compile(r"(?:\s+|#[^\n]*|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<number>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<string>"[^"]*"|'[^']*')
      | (?P<symbol>\[\||\|\]|=>|==|!=|<=|>=|&&|\|\||\.\.|\.\*|\*\*|[-+*/%<>!=:;,.(){}\[\]])""",
    re.VERBOSE,
)
CLOSING = {"(": ")", "{": "}", "[": "]"}
KEYWORDS = frozenset({"if", "then", "else", "new", "include", "array", "with", "true", "false"})


@dataclass(frozen=True)
class Token:
    """A token: its kind (number, name, string, keyword, symbol, end), text and place, and whether it begins a line."""

    kind: str
    text: str
    place: Place
    begins_line: bool = False

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.text}'"


class Tokens:
    """The tokens of a text, and the next one to read."""

    def begin(self, text: Text) -> None:
        self.tokens, self.next = tokens(text), 0

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.token
        self.next += token.kind != "end"
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these symbols or keywords."""
        return self.token.kind in ("symbol", "keyword") and self.token.text in texts

    def accept(self, *texts: str) -> Token | None:
        return self.take() if self.at(*texts) else None

    def expect(self, what: str) -> Token:
        """The next token, which has to be this symbol or keyword, or of the kind name or end."""
        token = self.token
        if token.kind == what or (token.kind in ("symbol", "keyword") and token.text == what):
            return self.take()
        raise self.unexpected({"name": "a name", "end": "a new line and 'name =', or the end"}.get(what, f"'{what}'"))

    def unexpected(self, expected: str) -> ConfigError:
        return self.token.place.error(f"{self.token} is not expected here: expected {expected}")


def tokens(text: Text) -> list[Token]:
    """The tokens of a text, with one of kind "end" behind them.

    Errors: ConfigError for a character that begins no token, or a string or comment without its end.
    """
    content, position = text.content, 0
    read: list[Token] = []
    begins_line = True
    while True:
        if blank := _BLANK.match(content, position):
            begins_line = begins_line or "\n" in blank[0]
            position = blank.end()
        place = Place(text, position)
        if position == len(content):
            return [*read, Token("end", "", place, begins_line=True)]
        match = _TOKEN.match(content, position)
        if match is None or content.startswith("/*", position):
            raise place.error(_complaint(content, position))
        kind = str(match.lastgroup)
        if match[0] in KEYWORDS:
            kind = "keyword"
        read.append(Token(kind, match[0], place, begins_line))
        position, begins_line = match.end(), False


def _complaint(content: str, position: int) -> str:
    """What is wrong where no token begins."""
    if content.startswith("/*", position):
        return "this comment has no end: '*/' is missing"
    character = content[position]
    if character in "\"'":
        return f"this string has no end: a second {character} is missing"
    hint = "; quotes are \" or '" if character in "‘’“”`" else ""
    if character == "$":
        hint = "; $name$ stands for a value of the configuration, and there is none of this name"
    return f"{character!r} has no meaning in BrainScript{hint}"


__all__ = ["CLOSING", "KEYWORDS", "Token", "Tokens", "tokens"]
