"""Values in a configuration: numbers with arithmetic, schedules by epoch, flags and texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..configuration import ConfigError, Place, Text
from ..configuration.block import FLAGS
from ..configuration.parsing import unquoted
from ..configuration.source import nearest
from .keys import Key, Kind
from .schedule import Schedule

Value: TypeAlias = "str | bool | int | float | Schedule"

_TOKEN = re.compile(
    r"\s*(?:(?P<infinity>1\.?#INF\b)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>#?[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|[-+*/^():,]))"
)
_DEPTH = 40  # of nested parentheses
_LARGEST = 2**53


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "sizeof": lambda size: size, "log": _log, "exp": math.exp, "sqrt": math.sqrt, "min": min, "max": max, "abs": abs,
    "floor": math.floor, "ceil": math.ceil,
}


@dataclass(frozen=True)
class Names:
    """What names in values stand for: `names` of numbers, in lower case, and keys of the block.

    `number_of` gives the value of a key; KeyError for other names.
    """

    names: Mapping[str, float]
    number_of: Callable[[str], float]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_value(key: Key, text: Text, scope: Names) -> Value:
    """The value of a key.

    Errors: ConfigError for one of another type, or out of its range.
    """
    try:
        value = _parsers[key.kind](key, text, scope)
        numbers = [v for _, v in value.entries] if isinstance(value, Schedule) else [value]
        if not all(_is_allowed(key, number) for number in numbers if isinstance(number, (int, float))):
            raise _error(key, text, "is out of range")
        return value
    except ConfigError as error:
        assert isinstance(error.place, Place)
        raise error.place.error(f"{error.problem}. {key.name} takes {key.allowed}") from None


def _error(key: Key, text: Text, problem: str) -> ConfigError:
    return text.at(0).error(f"{key.name} = {text.content} {problem}")


def _is_allowed(key: Key, value: float) -> bool:
    return not math.isnan(value) and (key.least is None or value >= key.least) and (
        key.below is None or value < key.below
    )


# ---- texts


def _text(_: Key, text: Text, scope: Names) -> str:
    return unquoted(text)


def _choice(key: Key, text: Text, scope: Names) -> str:
    content = unquoted(text)
    for choice in key.choices:
        if choice.lower() == content.lower():
            return choice
    guess = nearest(content, [choice for choice in key.choices if choice])
    raise text.at(0).error(f"{key.name} = {text.content}: " + (f"did you mean {guess}" if guess else "unknown"))


def _flag(key: Key, text: Text, scope: Names) -> bool:
    content = unquoted(text).lower()
    if content not in FLAGS:
        raise _error(key, text, "is neither")
    return FLAGS[content]


# ---- numbers


def _number(key: Key, text: Text, scope: Names) -> float:
    return _whole(_Expression(text, scope).number(), key, text)


def _schedule(key: Key, text: Text, scope: Names) -> Schedule:
    entries = _Expression(text, scope).schedule()
    return Schedule(tuple((count, _whole(value, key, text)) for count, value in entries))


def _whole(value: float, key: Key, text: Text) -> float:
    if key.kind not in (Kind.INTEGER, Kind.INTEGERS):
        return value
    if not math.isfinite(value) or value != int(value) or abs(value) >= _LARGEST:
        raise _error(key, text, "is no whole number, or too large")
    return int(value)


class _Expression:
    """A recursive-descent parser that computes: sums of products of powers, with names and functions."""

    def __init__(self, text: Text, scope: Names) -> None:
        self._text, self._scope, self._depth, self._at = text, scope, 0, 0
        self._tokens = list(self._read())

    def _read(self) -> list[_Token]:
        text, at, tokens = self._text.without_comments(), 0, []
        if text[:1] in ('"', "'") and text[-1:] == text[:1]:
            text = f" {text[1:-1]} "
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                if text[at] == "=":
                    raise self._error("another setting begins before this =: put it after a ; or on the next line", at)
                raise self._error(f"{text[at:].split()[0]!r} is no number", at)
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return tokens

    def _error(self, what: str, at: int | None = None) -> ConfigError:
        if at is None:
            at = self._tokens[self._at].at if self._at < len(self._tokens) else len(self._text.content)
        return self._text.at(at).error(what)

    def number(self) -> float:
        """The value of the whole text."""
        value = self._sum()
        self._expect_end()
        return value

    def schedule(self) -> list[tuple[int, float]]:
        """(number of epochs, value) pairs, of values between colons; a factor after ``*`` is a number of epochs.

        A colon may follow the last one, as in CNTK's own test Speech/QuickE2E.
        """
        entries = [self._item()]
        while self._take(":") and self._peek():
            entries.append(self._item())
        self._expect_end()
        return entries

    def _item(self) -> tuple[int, float]:
        """A value, and the factor after its last ``*`` outside of parentheses."""
        begin, depth, star = self._at, 0, None
        for i in range(begin, len(self._tokens)):
            text = self._tokens[i].text
            depth += (text == "(") - (text == ")")
            if depth == 0 and text == ":":
                break
            star = i if depth == 0 and text == "*" else star
        if star is None:
            return 1, self._sum()
        tokens, self._tokens = self._tokens, self._tokens[:star]
        try:
            value = self._sum()
            self._expect_end()
        finally:
            self._tokens = tokens
        self._at = star + 1
        epochs = self._power()
        if epochs < 1 or not math.isfinite(epochs) or epochs != int(epochs):
            raise self._error(f"the factor after * is a number of epochs, not {epochs:g}", tokens[star].at)
        return int(epochs), value

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _take(self, *texts: str) -> str:
        text = self._peek()
        if text and text in texts:
            self._at += 1
            return text
        return ""

    def _expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error(f"{self._peek()!r} is not expected here")

    def _sum(self) -> float:
        value = self._product()
        while operator := self._take("+", "-"):
            other = self._product()
            value = value + other if operator == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._power()
        while operator := self._take("*", "/"):
            at = self._tokens[self._at - 1].at
            other = self._power()
            if operator == "/" and other == 0:
                raise self._error("division by zero", at)
            value = value * other if operator == "*" else value / other
        return value

    def _power(self) -> float:
        sign = 1.0
        while operator := self._take("-", "+"):
            sign = -sign if operator == "-" else sign
        value = self._operand()
        if self._take("^", "**"):
            at = self._tokens[self._at - 1].at
            value = self._computed(lambda a, b: a**b, at, value, self._nested(self._power))
        return sign * value

    def _computed(self, function: Callable[..., float], at: int, *arguments: float) -> float:
        try:
            value = function(*arguments)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self._error(f"this cannot be computed: {error}", at) from None
        if isinstance(value, complex):
            raise self._error("this is no real number", at)
        return float(value)

    def _nested(self, parse: Callable[[], float]) -> float:
        self._depth += 1
        if self._depth > _DEPTH:
            raise self._error(f"more than {_DEPTH} nested parentheses")
        value = parse()
        self._depth -= 1
        return value

    def _operand(self) -> float:
        if self._at >= len(self._tokens):
            raise self._error("the value ends here")
        token = self._tokens[self._at]
        self._at += 1
        match token.kind:
            case "infinity":
                return math.inf
            case "number":
                return float(token.text)
            case "name":
                return self._name(token)
        if token.text != "(":
            self._at -= 1
            raise self._error(f"{token.text!r} is not expected here")
        value = self._nested(self._sum)
        self._close()
        return value

    def _close(self) -> None:
        if not self._take(")"):
            raise self._error("a parenthesis is not closed")

    def _name(self, token: _Token) -> float:
        name = token.text
        if name.lower() in FUNCTIONS and self._take("("):
            arguments = [self._nested(self._sum)]
            while self._take(","):
                arguments.append(self._nested(self._sum))
            self._close()
            return self._computed(FUNCTIONS[name.lower()], token.at, *arguments)
        if name.lower() in self._scope.names:
            return self._scope.names[name.lower()]
        try:
            return self._scope.number_of(name)
        except KeyError:
            raise self._error(f"{name!r} is no number", token.at) from None


_parsers: Mapping[Kind, Callable[[Key, Text, Names], Value]] = {
    Kind.TEXT: _text, Kind.CHOICE: _choice, Kind.FLAG: _flag, Kind.INTEGER: _number, Kind.NUMBER: _number,
    Kind.INTEGERS: _schedule, Kind.NUMBERS: _schedule,
}
