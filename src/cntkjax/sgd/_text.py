"""Configuration texts, places in them, and their structure: assignments and nested blocks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|#(?!INF\b)[^\n]*")
_WORKERS = re.compile(r"#workers\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"(?:^|(?<=[\n;{\[]))[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*(?![ \t\n{\[=]|$)")
_SGD = re.compile(r"\bSGD\s*=\s*([{\[])", re.IGNORECASE)
_CLOSING = {"{": "}", "[": "]", "(": ")"}
DEPTH = 40  # of nested brackets


class ConfigError(ValueError):
    """A configuration that cannot be used. The message has the line and column, the key, and what is allowed.

    `problem`: the message without the place. `place`: where it is, as ``str(place)`` says; None where no line is wrong,
    as for a key that is missing. `context`: lines below the message, such as the user's line with a caret.
    """

    def __init__(self, problem: str, place: object = None, context: str = "") -> None:
        message = problem if place is None else f"{place}: {problem}"
        super().__init__(f"{message}\n{context}" if context else message)
        self.problem, self.place, self.context = problem, place, context


@dataclass(frozen=True)
class ConfigText:
    """A text and what it is: a file, or an argument of Python's or of the command line (`is_file` is False)."""

    name: str
    text: str
    is_file: bool = True

    @cached_property
    def lines(self) -> list[int]:
        """The offsets at which lines begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def masked(self) -> str:
        """The text with blanks for comments, and underscores for quoted texts: what is left is structure."""

        def blank(match: re.Match[str]) -> str:
            if not match[0].startswith("#"):
                return "_" * len(match[0])
            before = self.text[: match.start()].rstrip(" \t")
            if before[-1:] in ("*", "/", "+", "-", "(") and (workers := _WORKERS.match(match[0])):
                rest = match[0][workers.end() :]
                return workers[0] + _QUOTED.sub(lambda m: " " * len(m[0]) if m[0][0] == "#" else "_" * len(m[0]), rest)
            return " " * len(match[0])

        return _QUOTED.sub(blank, self.text)

    def place(self, offset: int) -> object:
        """Where this offset is; its text is what messages say."""
        line = bisect_right(self.lines, offset)
        column = offset - self.lines[line - 1] + 1
        if not self.is_file:
            return f"{self.name}, column {column}"
        return f"{self.name + ', ' if self.name else ''}line {line}, column {column}"

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Begin and end of what is inside each pair of brackets { } or [ ], and of the whole text."""
        stack, blocks = [0], []
        for match in re.finditer(r"[{}\[\]]", self.masked):
            if match[0] in "{[":
                stack.append(match.end())
            elif len(stack) > 1:
                blocks.append((stack.pop(), match.start()))
        return [*blocks, *((begin, len(self.text)) for begin in stack)]

    def enclosing(self, offset: int) -> tuple[int, int]:
        """The innermost block around an offset."""
        return max((begin, end) for begin, end in self.blocks if begin <= offset <= end)

    @cached_property
    def definitions(self) -> list[tuple[str, tuple[int, int], Raw]]:
        """All simple assignments in the text, for ``$name$``: the name, the block around it, and the value."""
        return [
            (match[1].lower(), self.enclosing(match.start(1)), Raw(self, match.end(), value_end(self, match.end())))
            for match in _ASSIGNED.finditer(self.masked)
        ]


@dataclass(frozen=True)
class Raw:
    """The text of a value in its source."""

    source: ConfigText
    begin: int
    end: int

    @property
    def text(self) -> str:
        """The value as written, without comments inside it."""
        masked = self.source.masked
        return "".join(
            " " if masked[i] == " " else self.source.text[i] for i in range(self.begin, self.end)
        ).rstrip()

    def place(self, offset: int = 0) -> object:
        """Where an offset of the value is."""
        return self.source.place(self.begin + offset)

    def error(self, problem: str, offset: int = 0) -> ConfigError:
        """An error at an offset of the value."""
        return ConfigError(problem, self.place(offset))

    def definition(self, name: str) -> Raw | None:
        """The value assigned to a name in the innermost of the blocks around this one."""
        matches = [
            (block, raw) for defined, block, raw in self.source.definitions
            if defined == name.lower() and block[0] <= self.begin <= block[1] and raw != self
        ]
        return max(matches, key=lambda match: match[0])[1] if matches else None


def as_raw(value: str, name: str) -> Raw:
    """A value that was not in a file; `name` says what it is in messages."""
    return Raw(ConfigText(name, value, is_file=False), 0, len(value))


@dataclass(frozen=True)
class Assignment:
    """``name = value``, or ``name = {``, which has no value and precedes the assignments in that block.

    `place`: where the name is. `section`: the names of the blocks around it, below the SGD block.
    """

    name: str
    place: object
    section: tuple[str, ...]
    value: Raw | None


def sgd_block(source: ConfigText) -> tuple[int, int]:
    """Begin and end of the SGD block in a text: what is inside its brackets, or else the whole text.

    Errors: ConfigError if there are several.
    """
    matches = list(_SGD.finditer(source.masked))
    if not matches:
        return 0, len(source.text)
    if len(matches) > 1:
        first, last = (source.place(match.start()) for match in (matches[0], matches[-1]))
        problem = f"there are {len(matches)} SGD blocks, the first at {first}: give the text of one of them"
        raise ConfigError(problem, last)
    begin = matches[0].end()
    return begin, closing(source, begin - 1)


def inherited(source: ConfigText) -> dict[str, Raw]:
    """What is assigned in the blocks around the SGD block, by names in lower case; the innermost block counts."""
    begin, _ = sgd_block(source)
    around = [entry for entry in source.definitions if entry[1][0] < begin <= entry[1][1]]
    return {name: raw for name, _, raw in sorted(around, key=lambda entry: entry[1][0])}


def assignments(source: ConfigText, begin: int, end: int, section: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """The assignments between two offsets, those in nested blocks included.

    Errors: ConfigError for anything else.
    """
    at, masked = begin, source.masked
    if len(section) > DEPTH:
        raise ConfigError(f"more than {DEPTH} nested blocks; close some of them", source.place(begin))
    while True:
        at = _skip(masked, at, end, " \t\r\n;")
        if at >= end:
            return
        name = _NAME.match(masked, at, end)
        equals = -1 if name is None else _skip(masked, name.end(), end, " \t")
        if name is None or masked[equals : equals + 1] != "=" or equals >= end:
            word = source.text[at:end].split("\n")[0][:20].strip()
            raise ConfigError(f"expected key = value, not {word!r}; comments begin with #", source.place(at))
        value = _skip(masked, equals + 1, end, " \t")
        bracket = _skip(masked, value, end, " \t\r\n")
        if masked[bracket : bracket + 1] in ("{", "[") and bracket < end:
            closed = closing(source, bracket)
            yield Assignment(name[0], source.place(at), section, None)
            yield from assignments(source, bracket + 1, closed, (*section, name[0]))
            at = closed + 1
            continue
        stop = value_end(source, value, end)
        if not source.text[value:stop].strip():
            problem = f"{name[0]} has no value; write {name[0]} = value, or leave it out"
            raise ConfigError(problem, source.place(at))
        yield Assignment(name[0], source.place(at), section, Raw(source, value, stop))
        at = stop


def value_end(source: ConfigText, begin: int, end: int | None = None) -> int:
    """Where a value ends: before a semicolon, bracket or the end of the line, unless inside parentheses."""
    depth, end = 0, len(source.text) if end is None else end
    for at in range(begin, end):
        character = source.masked[at]
        if character in "()":
            depth += 1 if character == "(" else -1
        elif character in "{}[];" or (character == "\n" and depth <= 0):
            return at
    return end


def closing(source: ConfigText, begin: int) -> int:
    """The offset of the bracket that closes the one at `begin`.

    Errors: ConfigError if there is none, or another kind of bracket is closed first.
    """
    stack: list[int] = []
    for match in re.compile(r"[{}\[\]]").finditer(source.masked, begin):
        if match[0] in _CLOSING:
            stack.append(match.start())
            continue
        opened = source.text[stack.pop()]
        if match[0] != _CLOSING[opened]:
            problem = f"{match[0]} closes a block that {opened} opened; write {_CLOSING[opened]}"
            raise ConfigError(problem, source.place(match.start()))
        if not stack:
            return match.start()
    opened = source.text[stack[-1]]
    problem = f"the block that {opened} opens here is not closed; add {_CLOSING[opened]} at its end"
    raise ConfigError(problem, source.place(stack[-1]))


def _skip(text: str, at: int, end: int, characters: str) -> int:
    while at < end and text[at] in characters:
        at += 1
    return at
