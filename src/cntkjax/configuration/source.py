"""Texts of configurations, and errors that show the place in them."""

from __future__ import annotations

import difflib
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

COMMAND_LINE = "the command line"  # the name of a text that is an argument
_NOT_STRUCTURE = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|(?<![^\s])#(?!workers\b)[^\n]*|(?<![^\s])//(?=[ \t])[^\n]*")
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_BRACKET = re.compile(r"[][(){}]")
_SHOWN = 160  # characters of a line in messages


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
class Text:
    """A text and where it came from.

    `name`: a file, or what it is. `origin`: where another text includes this one. `pieces`: for a text that was put
    together from others, such as a value in which ``$name$`` is replaced, or a part of a file: the offsets at which
    pieces begin, and where these are from.
    """

    name: str
    content: str
    origin: Place | None = None
    pieces: tuple[tuple[int, Place], ...] = ()

    @cached_property
    def line_starts(self) -> list[int]:
        """The offsets at which lines begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.content))]

    @cached_property
    def masked(self) -> str:
        """The text with blanks for comments, and underscores for quoted texts: the rest is structure.

        A comment begins with ``#``, but in ``#workers``, or with ``//`` and a blank, after white space.
        """
        return _NOT_STRUCTURE.sub(lambda m: (" " if m[0][0] in "#/" else "_") * len(m[0]), self.content)

    @cached_property
    def closing(self) -> dict[int, int]:
        """The offsets of opening brackets, and of those that close them. Errors: ConfigError if they don't match.

        Closing brackets too many at the very end count for nothing, as in CNTK, for whose users such files worked.
        """
        pairs: dict[int, int] = {}
        opened: list[int] = []
        for match in _BRACKET.finditer(self.masked):
            if match[0] in _CLOSING:
                opened.append(match.start())
            elif not opened and not self.masked[match.start() :].strip(" \t\n]})"):
                break
            elif not opened or _CLOSING[self.masked[opened[-1]]] != match[0]:
                raise self._unbalanced(match.start(), opened)
            else:
                pairs[opened.pop()] = match.start()
        if opened:
            bracket = self.masked[opened[-1]]
            raise self.at(opened[-1]).error(f"{bracket} is not closed; add {_CLOSING[bracket]} where the block ends")
        return pairs

    def _unbalanced(self, offset: int, opened: Sequence[int]) -> ConfigError:
        bracket = self.masked[offset]
        if not opened:
            return self.at(offset).error(f"{bracket} closes nothing; remove it, or open the block")
        begun, opening = self.at(opened[-1]).original, self.masked[opened[-1]]
        return self.at(offset).error(f"{bracket} closes {opening} of line {begun.line}; expected {_CLOSING[opening]}")

    def at(self, offset: int) -> Place:
        """The place at an offset."""
        return Place(self, offset)

    def part(self, begin: int, end: int) -> Text:
        """A part of this text, without blanks and comments around it."""
        structure = self.masked[begin:end]
        begin, end = begin + len(structure) - len(structure.lstrip()), begin + len(structure.rstrip())
        content = self.content[begin:end]
        begin += len(content) - len(content.lstrip())
        return Text(self.name, content.strip(), self.origin, ((0, self.at(begin)),))

    def without_comments(self) -> str:
        """The content with blanks for comments."""
        return "".join(
            c if m == c or m == "_" else " " for c, m in zip(self.content, self.masked, strict=True)
        )


@dataclass(frozen=True)
class Place:
    """An offset in a text."""

    text: Text
    offset: int

    @property
    def original(self) -> Place:
        """The place in the file or argument that was written by the user."""
        place = self
        while place.text.pieces:
            starts = [offset for offset, _ in place.text.pieces]
            begin, source = place.text.pieces[max(bisect_right(starts, place.offset) - 1, 0)]
            place = Place(source.text, source.offset + max(place.offset - begin, 0))
        return place

    @property
    def line(self) -> int:
        """The number of the line in the text, from 1."""
        return bisect_right(self.text.line_starts, self.offset)

    @property
    def column(self) -> int:
        """The number of the column in the text, from 1."""
        return self.offset - self.text.line_starts[self.line - 1] + 1

    def __str__(self) -> str:
        place = self.original
        return f"{place.text.name}{', ' * bool(place.text.name)}line {place.line}, column {place.column}"

    def excerpt(self) -> str:
        """The user's line with a caret below the column."""
        place = self.original
        line = place.text.content[place.text.line_starts[place.line - 1] :].split("\n", 1)[0].rstrip()
        first = max(0, place.column - 1 - _SHOWN // 2) if len(line) > _SHOWN else 0
        line, column = line[first : first + _SHOWN], place.column - 1 - first
        blanks = "".join("\t" if character == "\t" else " " for character in line[:column])
        return f"  {line}\n  {blanks}^"

    def error(self, message: str, chain: tuple[tuple[str, Place], ...] = ()) -> ConfigError:
        """An error at this place.

        `chain`: what led here (macros, functions), the innermost first; the includes of the text follow.
        """
        lines = [self.excerpt()]
        lines += dict.fromkeys(f"  in {what}, at {place}" for what, place in chain)
        text = self.original.text
        while text.origin is not None:
            lines.append(f"  in {text.name}, included at {text.origin}")
            text = text.origin.original.text
        return ConfigError(message, self, "\n".join(lines))

    def unknown(self, message: str, name: str, known: Iterable[str], otherwise: str = "") -> ConfigError:
        """An error about a name that there is not; it ends with the nearest one that there is."""
        guess = nearest(name, known)
        return self.error("; ".join([message, *([f"did you mean {guess}?"] if guess else filter(None, [otherwise]))]))


def nearest(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """The name that is spelt most like this one, if any is similar: 1 is the same.

    >>> nearest("minibatchsze", ["maxEpochs", "minibatchSize"])
    'minibatchSize'
    """
    by_lower = {each.lower(): each for each in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, 1, similarity)
    return by_lower[matches[0]] if matches else None


def local_path(name: str) -> str:
    """The name of a file as it is here: configurations that were written on Windows have backslashes in it."""
    return name if os.path.exists(name) else name.replace("\\", os.sep)


def find_file(name: str, place: Place) -> Path:
    """A file of this name in the current folder, or beside the text that names it or those that include that.

    Errors: ConfigError if there is none.
    """
    name, folders = local_path(name), [Path()]
    at: Place | None = place
    while at is not None:
        folders.append(Path(at.text.name).parent)
        at = at.text.origin
    if (file := next((folder / name for folder in folders if (folder / name).is_file()), None)) is not None:
        return file
    near = Path(name).parent
    others = sorted(each for each in os.listdir(near) if each.endswith(Path(name).suffix)) if near.is_dir() else []
    hint = f"; in {near} there are {', '.join(others[:8])}" if others else ""
    raise place.error((f"there is no file {name}" if name else "a file has to be named here") + hint)


def content_of(path: Path) -> str:
    """The text of a file, whatever its line ends are, and whether it begins with a mark of its encoding."""
    return path.read_bytes().decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


__all__ = ["COMMAND_LINE", "ConfigError", "Place", "Text", "content_of", "find_file", "local_path", "nearest"]
