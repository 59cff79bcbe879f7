"""Texts of configurations, and errors that show the place in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from ..sgd import ConfigError


@dataclass(frozen=True)
class Text:
    """A text and where it came from: a file, an argument, or a part of another text.

    `origin`: the place in another text at which this one begins (a block of a file, an expanded ``$name$``), or None.
    """

    name: str
    content: str
    origin: Place | None = None

    @cached_property
    def line_starts(self) -> list[int]:
        """The offsets at which lines begin."""
        return [0, *(i + 1 for i, character in enumerate(self.content) if character == "\n")]


@dataclass(frozen=True)
class Place:
    """An offset in a text."""

    text: Text
    offset: int

    @property
    def line(self) -> int:
        """The number of the line, from 1."""
        return bisect_right(self.text.line_starts, self.offset)

    @property
    def column(self) -> int:
        """The number of the column, from 1."""
        return self.offset - self.text.line_starts[self.line - 1] + 1

    def __str__(self) -> str:
        return f"{self.text.name}, line {self.line}, column {self.column}"

    def excerpt(self) -> str:
        """The line with a caret below the column."""
        line = self.text.content[self.text.line_starts[self.line - 1] :].split("\n", 1)[0].rstrip()
        tabs = "".join("\t" if character == "\t" else " " for character in line[: self.column - 1])
        return f"  {line}\n  {tabs}^"

    def error(self, message: str, chain: tuple[tuple[str, Place], ...] = ()) -> ConfigError:
        """An error at this place.

        `chain`: what led here (includes, macros, functions), the innermost first.
        """
        lines = [f"{self}: {message}", self.excerpt()]
        lines += [f"  in {what}, at {place}" for what, place in chain]
        if self.text.origin is not None:
            lines.append(f"  in {self.text.name}, at {self.text.origin}")
        return ConfigError("\n".join(lines))


__all__ = ["ConfigError", "Place", "Text"]
