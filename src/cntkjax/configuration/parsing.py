"""The syntax of configurations: assignments, blocks, arrays and quoted values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .source import ConfigError, Place, Text

_ITEM = re.compile(r"(\w[\w.]*)[ \t]*([={(])")
_BLOCK = re.compile(r"\s*[\[{(]")
_NEXT = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_BREAKS = re.compile(r"[\n;,\[\](){}]")
_REPEATED = 10**6  # elements of an array


@dataclass(frozen=True, eq=False)
class Entry:
    """An assignment: its name as written, where that is, and the text of the value."""

    name: str
    place: Place
    value: Text

    @property
    def is_block(self) -> bool:
        """Whether the value is a block, ``[...]`` or ``{...}``."""
        return self.value.content[:1] in ("[", "{")


def assignments(text: Text) -> Iterator[Entry]:
    """The assignments in a text: ``name = value``, separated by line ends, semicolons, or commas before a name.

    Errors: ConfigError for anything else.
    """
    masked, at = text.masked, 0
    closing = text.closing
    while True:
        while at < len(masked) and (masked[at].isspace() or masked[at] in ";,"):
            at += 1
        if at == len(masked) or masked[at] in "]})":  # see `Text.closing`
            return
        match = _ITEM.match(masked, at)
        if match is None:
            raise _unexpected(text, at, text.content[at : at + 30].split("\n", 1)[0].strip())
        if match[2] == "=":
            begin = _begin(masked, match.end())
            end = _end(masked, begin, closing)
            without_comment = begin + len(masked[begin:end].rstrip())
            yield Entry(match[1], text.at(at), text.part(begin, without_comment))
            at = end
        else:  # a macro of NDL
            end = _end(masked, match.start(2), closing)
            at = _end(masked, _begin(masked, end + 1), closing) if masked[end : end + 1] == "=" else end


def _unexpected(text: Text, at: int, word: str) -> ConfigError:
    hint = "; a comment begins with # after a blank" if "#" in word else ""
    return text.at(at).error(f"expected key = value, not {word!r}{hint}")


def _begin(masked: str, at: int) -> int:
    """Where a value begins: after blanks, or in a later line if that begins with a bracket."""
    block = _BLOCK.match(masked, at)
    return block.end() - 1 if block else at


def _end(masked: str, begin: int, closing: dict[int, int]) -> int:
    """Where a value ends: with its block, or before a separator."""
    at = begin
    if masked[begin : begin + 1] in ("[", "{"):
        return closing[begin] + 1
    while match := _BREAKS.search(masked, at):
        if match[0] in "[({":
            at = closing[match.start()] + 1
        elif match[0] == "," and not _NEXT.match(masked, match.end()):
            at = match.end()
        else:
            return match.start()
    return len(masked)


def inside(text: Text) -> Text:
    """What is inside the brackets of a block. Errors: ConfigError for another value, or if something follows them."""
    if text.content[:1] not in ("[", "{"):
        raise text.at(0).error("expected a block, [ ... ]")
    end = text.closing[0]
    if text.masked[end + 1 :].strip():
        raise text.at(end + 1).error("nothing may follow the block; begin a new line")
    return text.part(1, end)


def unquoted(text: Text) -> str:
    """A value without comments and quotes. Errors: ConfigError for quotes that are not closed."""
    content = text.without_comments().strip()
    if content[:1] in ('"', "'"):
        if len(content) < 2 or content[-1] != content[0]:
            raise text.at(0).error(f"the quote {content[0]} is not closed")
        return content[1:-1]
    return content


def within_quotes(text: Text) -> Text:
    """What is between the quotes that stand around all of a value, or else the value."""
    content = text.without_comments().rstrip()
    if len(content) > 1 and content[0] == content[-1] and content[0] in "\"'" and content[0] not in content[1:-1]:
        return text.part(1, len(content) - 1)
    return text


def elements(text: Text) -> list[Text]:
    """The elements of an array: separated by ``:``, or by the character after an opening parenthesis; ``(a, b)`` too.

    Errors: ConfigError for a number of repetitions that is none, or too large.
    """
    if not set(text.content) & set("/\\"):  # "a:b" is an array, too, but "C:/a" a file
        text = within_quotes(text)
    masked, separator, begin, end = text.masked.rstrip(), ":", 0, len(text.masked.rstrip())
    if masked[:1] == "(" and text.closing[0] == end - 1:
        begin, end = 1, end - 1
        after = masked[1:2]
        if after and not (after.isalnum() or after.isspace() or after in "_.\"'$({[/\\-"):
            separator, begin = after, 2
        elif sum(1 for _ in _split(masked, begin, end, ":", text.closing)) == 1:
            separator = ","
    parts: list[Text] = []
    for first, last in _split(masked, begin, end, separator, text.closing):
        part = text.part(first, last)
        parts += _repeated(part) if separator in ":," else [part]
        if len(parts) > _REPEATED:
            raise part.at(0).error(f"an array has at most {_REPEATED} elements")
    return [part for part in parts if part.content]


def _split(
    masked: str, begin: int, end: int, separator: str, closing: dict[int, int]
) -> Iterator[tuple[int, int]]:
    first = at = begin
    while at < end:
        if masked[at] in "[({":
            at = closing[at]
        elif masked[at] == separator:
            yield first, at
            first = at + 1
        at += 1
    yield first, end


def _repeated(part: Text) -> list[Text]:
    """``a*3`` is three times a."""
    star = part.masked.rfind("*")
    count = part.content[star + 1 :].strip()
    if star <= 0 or not count.isdigit():
        return [part]
    if len(count) > 7 or int(count) > _REPEATED:
        raise part.at(star).error(f"an array has at most {_REPEATED} elements")
    return [part.part(0, star)] * int(count)


__all__ = ["Entry", "assignments", "elements", "inside", "unquoted"]
