"""Commands of MEL, as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...configuration import ConfigError, Place, Text

_STATEMENT = re.compile(r"[ \t]*(?:([A-Za-z_]\w*)[ \t]*=[ \t]*)?([A-Za-z_]\w*)[ \t]*\(", re.MULTILINE)
_ARGUMENT = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^,\"'\[])+?)\s*(?:,|$)")


@dataclass(frozen=True)
class EditLine:
    """A command as it is written."""

    name: str
    result: str
    arguments: list[str]
    options: dict[str, str]
    place: Place

    def error(self, message: str) -> ConfigError:
        """An error at the command."""
        return self.place.error(f"{self.name}: {message}")

    def argument(self, index: int) -> str:
        """An argument without quotes. Errors: ConfigError if there are fewer."""
        if index >= len(self.arguments):
            raise self.error(f"{index + 1} arguments are needed, {len(self.arguments)} are given")
        return self.arguments[index].strip("\"'")

    def number(self, index: int) -> float:
        """An argument that is a number. Errors: ConfigError if it is none."""
        try:
            return float(self.argument(index))
        except ValueError:
            raise self.error(f"a number is expected, not {self.argument(index)!r}") from None


def commands(text: Text, known: Iterable[str]) -> Iterator[tuple[EditLine, int, int]]:
    """The commands of a script, with where they begin and end."""
    masked = re.sub(r"(?m)(^|(?<=\s))#[^\n]*", lambda match: " " * len(match[0]), text.content)
    for match in _STATEMENT.finditer(masked):
        before = masked[masked.rfind("\n", 0, match.start()) + 1 : match.start()].rstrip()
        is_known = plain(match[2]) in known and before[-1:] in ("", ";")
        if not is_known and (match[1] or before):
            continue
        end = _closing(masked, match.end(), Place(text, match.end() - 1))
        if masked[end + 1 :].lstrip()[:1] in ("{", "[", "="):
            continue  # a macro
        arguments, options = _arguments(masked[match.end() : end])
        place = Place(text, match.start(2))
        yield EditLine(match[2], match[1] or "", arguments, options, place), match.start(), end + 1


def plain(name: str) -> str:
    """A command's name in lower case, without the parts that its longer forms have."""
    return re.sub(r"(?<!^dump)(node|withname)|network", "", name.lower())


def _closing(masked: str, begin: int, opening: Place) -> int:
    """Where the parenthesis closes."""
    depth = 1
    for at in range(begin, len(masked)):
        depth += {"(": 1, ")": -1}.get(masked[at], 0)
        if depth == 0:
            return at
    raise opening.error("this '(' is not closed by ')'")


def _arguments(text: str) -> tuple[list[str], dict[str, str]]:
    """Positional arguments, and options by name in lower case."""
    arguments: list[str] = []
    options: dict[str, str] = {}
    for match in _ARGUMENT.finditer(text):
        name, equals, value = match[1].partition("=")
        if equals and name.strip().isidentifier():
            options[name.strip().lower()] = value.strip().strip("\"'")
        else:
            arguments.append(match[1])
    return arguments, options


__all__ = ["EditLine", "commands", "plain"]
