"""Blocks of assignments, and the values that names have in them and in the blocks around them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from .parsing import Entry, assignments, elements, inside, unquoted, within_quotes
from .source import COMMAND_LINE, ConfigError, Place, Text, content_of, local_path, nearest

FLAGS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0", ""), False)
FILES_ARE_READ = ContextVar("whether files that are named have to be there", default=True)
_REFERENCE = re.compile(r"\$(\w+)\$")
Value = TypeVar("Value")
_LARGEST = 2**22  # characters of a value after replacing ``$name$``


class Block:
    """Assignments, whose names may be in any case; what it lacks is looked up in the blocks around it.

    The last assignment of a name counts; blocks that follow each other are merged. `place`: where it is assigned.
    """

    def __init__(
        self, name: str, outer: Block | None, entries: Iterable[Entry] = (), place: Place | None = None
    ) -> None:
        self.name, self.outer, self.place = name, outer, place
        self._entries: dict[str, list[Entry]] = {}
        self._blocks: dict[str, Block] = {}
        self._expanding: set[str] = set()
        self._expanded: dict[Entry, Text] = {}
        self._asked: dict[str, str] = {}  # names that were looked up, in lower case and as written
        self.add_all(entries)

    def add(self, entry: Entry) -> None:
        """Assign."""
        self._expanded.clear()
        before = self._entries.setdefault(entry.name.lower(), [])
        if not (entry.is_block and before and before[-1].is_block):
            before.clear()
        before.append(entry)
        self._blocks.pop(entry.name.lower(), None)

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Assign each."""
        for entry in entries:
            self.add(entry)

    # ---- access
    def __contains__(self, name: str) -> bool:
        self._asked[name.lower()] = name
        return name.lower() in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """The entries of this block itself: the last of each name, in order."""
        return (entries[-1] for entries in self._entries.values())

    def scopes(self) -> Iterator[Block]:
        """This block and those around it, outwards."""
        scope: Block | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, name: str) -> tuple[Block, Entry] | None:
        """The entry of a name, and the block that it is in. In ``a = $a$`` it is that of a block around."""
        key, within = name.lower(), None
        for scope in self.scopes():
            scope._asked[key] = name
            if entries := scope._entries.get(key):
                if key not in scope._expanding:
                    return scope, entries[-1]
                within = within or (scope, entries[-1])
        return within

    def get(self, name: str) -> Text | None:
        """The value of a name here or around, with ``$name$`` replaced; None if there is none.

        Errors: ConfigError for ``$name$`` that is not defined, or refers to itself.
        """
        definition = self.find(name)
        return None if definition is None else definition[0].expanded(definition[1])

    def own(self, name: str) -> Text | None:
        """The value of a name in this block itself."""
        return self.get(name) if name in self else None

    def block(self, name: str) -> Block | None:
        """The block of a name here or around, merged from all of its texts. Errors: ConfigError if it is none."""
        definition = self.find(name)
        if definition is None:
            return None
        scope, last = definition
        if not last.is_block:
            text = scope.expanded(last)
            if text.content[:1] not in ("[", "{"):
                raise last.value.at(0).error(f"expected a block, {last.name} = [ ... ]")
            return Block(last.name, scope, assignments(inside(text)), last.place)
        if name.lower() not in scope._blocks:
            merged = Block(last.name, scope, place=last.place)
            for entry in scope._entries[name.lower()]:
                merged.add_all(assignments(inside(entry.value)))
            scope._blocks[name.lower()] = merged
        return scope._blocks[name.lower()]

    def required_block(self, name: str) -> Block:
        """The same. Errors: ConfigError also if there is none."""
        if (block := self.block(name)) is None:
            raise self.missing(name)
        return block

    def named_block(self, key: str) -> Block:
        """The block that the value of a key names. Errors: ConfigError if there is none."""
        if (value := self.get(key)) is None:
            raise self.missing(key)
        if (block := self.block(name := unquoted(value))) is None:
            names = [entry.name for scope in self.scopes() for entry in scope if entry.is_block]
            raise value.at(0).unknown(f"{key} = {name}: there is no block {name}", name, names)
        return block

    def blocks(self, name: str) -> list[Block]:
        """The blocks of an array of this block itself, ``name = ([...] : [...])``."""
        value = self.own(name)
        texts = [] if value is None else elements(value)
        blocks = [Block(name, self, assignments(inside(text)), text.at(0)) for text in texts]
        self._blocks |= {f"{name.lower()}[{i}]": block for i, block in enumerate(blocks)}
        return blocks

    def inner(self) -> list[Block]:
        """All blocks of this block itself."""
        return [self.required_block(entry.name) for entry in self if self.expanded(entry).content[:1] in ("[", "{")]

    def path(self) -> str:
        """The names of the blocks, from the outermost, for messages."""
        return " in ".join(scope.name for scope in self.scopes() if scope.outer is not None) or self.name

    # ---- replacing $name$
    def expanded(self, entry: Entry) -> Text:
        """The value of an entry of this block, with ``$name$`` replaced."""
        if "$" not in entry.value.content:
            return entry.value
        if entry in self._expanded:
            return self._expanded[entry]
        if entry.name.lower() in self._expanding:
            raise entry.value.at(0).error(
                f"${entry.name}$ refers to itself; give it a value, as in {entry.name}=value on the command line"
            )
        self._expanding.add(entry.name.lower())
        try:
            self._expanded[entry] = self.expand(entry.value)
            return self._expanded[entry]
        finally:
            self._expanding.remove(entry.name.lower())

    def expand(self, text: Text) -> Text:
        """A text with ``$name$`` replaced by what the names are here. Errors: as of `get`."""
        if not _REFERENCE.search(text.content):
            return text
        content, length, pieces, end = [], 0, [], 0
        for match in _REFERENCE.finditer(text.content):
            if text.masked[match.start()] == " ":  # in a comment
                continue
            value = self._referred(match, text)
            for part, place in ((text.content[end : match.start()], text.at(end)), (value.content, value.at(0))):
                pieces.append((length, place))
                content.append(part)
                length += len(part)
            if length > _LARGEST:
                raise text.at(match.start()).error("the text grows without end; write it out")
            end = match.end()
        pieces.append((length, text.at(end)))
        return Text(text.name, "".join([*content, text.content[end:]]), text.origin, tuple(pieces))

    def _referred(self, match: re.Match[str], text: Text) -> Text:
        *_, outermost = self.scopes()  # what the command line says counts first: CNTK's log of AsynchronousSGD
        entries = outermost._entries.get(match[1].lower(), ())
        value = (outermost if entries and entries[-1].place.text.name == COMMAND_LINE else self).get(match[1])
        if value is None:
            names = [name for scope in self.scopes() for name in scope._entries]
            guess = nearest(match[1], names)
            hint = f"did you mean ${guess}$?" if guess else f"define it, as in {match[1]}=value on the command line"
            raise text.at(match.start()).error(f"${match[1]}$ is not defined; {hint}")
        return within_quotes(value)

    # ---- values
    def text(self, name: str, default: str | None = None) -> str:
        """A text, without quotes. Errors: ConfigError if there is none and no default."""
        return self._converted(name, default, unquoted)

    def _converted(self, name: str, default: Value | None, convert: Callable[[Text], Value]) -> Value:
        value = self.get(name)
        if value is not None:
            return convert(value)
        if default is None:
            raise self.missing(name)
        return default

    def file(self, name: str, default: str | None = None) -> str:
        """A text that is the name of a file; see `local_path`. Errors: those of `text`."""
        return local_path(self.text(name, default))

    def existing_file(self, name: str) -> str:
        """The same of a file that is read. Errors: ConfigError too if it is not there."""
        path, value = self.file(name), self.get(name)
        if value is not None and not os.path.exists(path) and FILES_ARE_READ.get():
            folder = "" if os.path.isabs(path) else f"; relative names are those in {os.getcwd()}"
            raise value.at(0).error(f"there is no file {path}{folder}")
        return path

    def content(self, name: str) -> str:
        """The text of the file that a key names. Errors: as of `existing_file`."""
        return content_of(Path(self.existing_file(name)))

    def missing(self, name: str) -> ConfigError:
        """The error for a key that is needed."""
        message = f"{self.path()} has no {name}: write {name} = ... in it, or in a block around it"
        if guess := nearest(name, [entry.name for entry in self]):
            message += f"; is {guess} meant to be {name}?"
        return ConfigError(message) if self.place is None else self.place.error(message)

    def flag(self, name: str, default: bool) -> bool:
        """True or false. Errors: ConfigError for another value."""
        value = self.get(name)
        if value is None:
            return default
        if (text := unquoted(value).lower()) not in FLAGS:
            raise value.at(0).error(f"{name} is true or false, not {text!r}")
        return FLAGS[text]

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number. Errors: ConfigError for another value, or if there is none and no default."""
        return self._converted(name, default, lambda value: int(_number(value, name, whole=True)))

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1. Errors: as `integer`."""
        return self._converted(name, default, lambda value: int(_number(value, name, whole=True, least=1)))

    def number(self, name: str, default: float) -> float:
        """A number. Errors: ConfigError for another value."""
        return self._converted(name, default, lambda value: _number(value, name, whole=False))

    def array(self, name: str) -> list[str]:
        """The elements of an array, ``a:b*3:c`` or ``(;a;b)``; empty without a value."""
        value = self.get(name)
        return [] if value is None else [unquoted(part) for part in elements(value)]

    def integers(self, name: str) -> list[int]:
        """The elements of an array of whole numbers. Errors: ConfigError for another element."""
        return [int(number) for number in self.numbers(name, whole=True)]

    def numbers(self, name: str, whole: bool = False) -> list[float]:
        """The elements of an array of numbers. Errors: ConfigError for another element."""
        value = self.get(name)
        return [] if value is None else [_number(part, name, whole) for part in elements(value)]

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of the choices, as spelt there. Errors: ConfigError for another value."""
        return self._converted(name, default, lambda value: _choice(value, name, choices))

    def choices(self, name: str, choices: Iterable[str]) -> list[str]:
        """The elements of an array of choices, as spelt there. Errors: ConfigError for another element."""
        value = self.get(name)
        return [] if value is None else [_choice(part, name, choices) for part in elements(value)]

    def unread(self, known: Iterable[str], inner: bool = True) -> Iterator[str]:
        """Warnings for values that nobody looked up in this block, and (`inner`) in those inside it that were used."""
        names = [*known]
        yield from self.unknown([*self._asked.values(), *names, *(entry.name for entry in self if entry.is_block)])
        for block in self._blocks.values() if inner else ():
            yield from block.unread(names)

    def unknown(self, known: Iterable[str]) -> Iterator[str]:
        """Warnings for keys of this block that nothing reads, which CNTK ignored, too."""
        names = [*known]
        lower = {name.lower() for name in names}
        for entry in self:
            if entry.name.lower() not in lower:
                guess = nearest(entry.name, names)
                hint = f"; did you mean {guess}?" if guess else ""
                yield f"{entry.place}: {self.name} has no key {entry.name}, which is ignored{hint}"


def _choice(text: Text, name: str, choices: Iterable[str]) -> str:
    content = unquoted(text)
    for choice in choices:
        if choice.lower() == content.lower():
            return choice
    raise text.at(0).unknown(f"{name} is one of {', '.join(choices)}", content, choices)


def _number(text: Text, name: str, whole: bool, least: float = -math.inf) -> float:
    content = unquoted(text)
    with suppress(ValueError):
        value = float(content.replace("1#INF", "inf"))
        if value >= least and (value.is_integer() or not whole):
            return value
    limit = f" of at least {least}" if math.isfinite(least) else ""
    raise text.at(0).error(f"{name} is {'a whole number' if whole else 'a number'}{limit}, not {content!r}")


__all__ = ["FILES_ARE_READ", "Block"]
