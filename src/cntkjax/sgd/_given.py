"""Where the values of a block are given: in a text, as arguments, on a command line."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..configuration import Block, ConfigError, Entry, Place, Text, assignments, inside
from ..configuration.source import COMMAND_LINE, nearest
from .keys import KEYS, SECTIONS, Key, Kind, keys_within
from .schedule import Schedule


@dataclass(frozen=True)
class Assignment:
    """``name = value``, or ``name = {``, which has no value and precedes the assignments in that block.

    `place`: where the name is. `section`: the names of the blocks around it, below the SGD block.
    """

    name: str
    place: Place
    section: tuple[str, ...]
    value: Text | None


def find_block(text: Text, outer: Block) -> tuple[Text, Block]:
    """What is inside the SGD block in a text, or else the whole text, and the block around it.

    `outer`: the block around the text.
    Errors: ConfigError if there are several SGD blocks, or the text is no configuration.
    """
    blocks = [*_sgd_blocks(text, outer)]
    if not blocks:
        return text, outer
    (first, around), (last, _) = blocks[0], blocks[-1]
    if first is not last:
        problem = f"there are {len(blocks)} SGD blocks, the first at {first.place}: give the text of one of them"
        raise last.place.error(problem)
    return inside(first.value), around


def _sgd_blocks(text: Text, outer: Block) -> Iterator[tuple[Entry, Block]]:
    pending = [(outer, [*assignments(text)])]
    for around, entries in pending:
        block = Block("the configuration", around, entries)
        for entry in entries:
            if entry.is_block and entry.name.lower() == "sgd":
                yield entry, block
            elif entry.is_block:
                with suppress(ConfigError):  # it may be a network, in BrainScript
                    pending.append((block, [*assignments(inside(entry.value))]))


def in_text(text: Text, outer: Block, section: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """The assignments in the text of an SGD block, those in nested blocks included.

    Errors: ConfigError for what is no assignment.
    """
    entries = [*assignments(text)]
    block = Block(section[-1] if section else "SGD", outer, entries)
    for entry in entries:
        if entry.is_block:
            yield Assignment(entry.name, entry.place, section, None)
            yield from in_text(inside(entry.value), block, (*section, entry.name))
        elif entry.value.content:
            yield Assignment(entry.name, entry.place, section, block.expanded(entry))
        else:
            raise entry.place.error(f"{entry.name} has no value; write {entry.name} = value, or leave it out")


def as_arguments(values: Mapping[str, Any], section: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """The same from Python: numbers, texts, lists by epoch, and nested mappings for nested blocks."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield Assignment(name, Text(f"argument {name}", name).at(0), section, None)
            yield from as_arguments(value, (*section, name))
        else:
            yield argument(f"argument {name}", name, value, section)


def argument(source: str, name: str, value: Any, section: tuple[str, ...] = ()) -> Assignment:
    """The same of one value; `source`: what messages call it."""
    text = Text(source, _written(name, value))
    return Assignment(name, text.at(0), section, text)


def _written(name: str, value: Any) -> str:
    """A value as it would be written in a block."""
    if isinstance(value, Schedule):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ":".join(_item(name, item) for item in value)
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        is_text = any(k.name.lower() == name.lower() and k.kind in (Kind.TEXT, Kind.CHOICE) for k in KEYS)
        quote = "'" if '"' in text else '"'
        return f"{quote}{text}{quote}" if is_text and text[:1] not in ('"', "'") else text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Real):
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
        return "(infinity)" if math.isinf(number) and number > 0 else repr(number)
    raise ConfigError(f"argument {name}: {value!r} of type {type(value).__name__} is no value of a key; give a "
                      "number, a text or a list by epoch")


def _item(name: str, item: Any) -> str:
    """A value of one epoch, or a pair (number of epochs, value)."""
    if isinstance(item, (list, tuple)) and len(item) == 2:
        return f"{_written(name, item[1])}*{_written(name, item[0])}"
    return _written(name, item)


def by_key(given: Iterable[Assignment]) -> dict[str, Text]:
    """The given values by the ids of their keys. A key in a block is inherited by the blocks inside it."""
    values: dict[str, Text] = {}
    places: dict[str, tuple[int, Place | None]] = {}  # how deep the value stands, and where
    for assignment in given:
        section = _section(assignment)
        if assignment.value is None or assignment.value.content == "...":
            continue
        for key in _keys(assignment, section):
            depth, place = places.get(key.id, (-1, None))
            if depth == len(section):
                raise assignment.place.error(f"{key.name} is given twice, first at {place}: leave out one")
            if depth < len(section):
                values[key.id], places[key.id] = assignment.value, (len(section), assignment.place)
    return values


def _section(assignment: Assignment) -> tuple[str, ...]:
    """The section that an assignment is in, or that it opens. Errors: ConfigError for unknown blocks."""
    names = assignment.section if assignment.value is not None else (*assignment.section, assignment.name)
    for section in SECTIONS:
        if [name.lower() for name in section] == [name.lower() for name in names]:
            return section
    name = names[-1]
    if any(key.name.lower() == name.lower() for key in KEYS):
        raise assignment.place.error(f"{name} takes a value, not a block: write {name} = value")
    blocks = {section[-1]: section[-2] if len(section) > 1 else "SGD" for section in SECTIONS if section}
    guess = nearest(name, blocks)
    hint = f"did you mean {guess}?" if guess else f"the blocks are {', '.join(blocks)}"
    if guess and guess.lower() == name.lower():
        around = names[-2] if len(names) > 1 else "SGD"
        name, hint = f"{guess} in {around}", f"it belongs in {blocks[guess]}"
    raise assignment.place.error(f"there is no block {name}; {hint}")


def _keys(assignment: Assignment, section: tuple[str, ...]) -> Sequence[Key]:
    """The keys of this name that may stand in the section. Errors: ConfigError if there is none."""
    name, allowed = assignment.name, keys_within(section)
    matches = [key for key in allowed if key.name.lower() == name.lower()]
    if matches:
        return matches
    block = section[-1] if section else "SGD"
    elsewhere = [key for key in KEYS if key.name.lower() == name.lower()]
    if elsewhere:
        belongs = " or ".join(key.section[-1] if key.section else "SGD" for key in elsewhere)
        raise assignment.place.error(f"{block} has no key {name}: it belongs in {belongs}")
    if any(part and part[-1].lower() == name.lower() for part in SECTIONS):
        raise assignment.place.error(f"{name} is a block: write {name} = {{ ... }}")
    guess = nearest(name, [key.name for key in allowed])
    hint = f"did you mean {guess}?" if guess else f"its keys are {', '.join(key.name for key in allowed)}"
    raise assignment.place.error(f"{block} has no key {name}; {hint}")


def is_key(name: str) -> bool:
    """Whether a key of the block, or of one inside it, has this name, whatever its case."""
    return any(key.name.lower() == name.lower() for key in KEYS)


def definitions(settings: Mapping[str, str]) -> Block:
    """What the user defines for ``$name$``: a block around all others."""
    texts = [Text(COMMAND_LINE, f"{name} = {value}") for name, value in settings.items()]
    return Block("the command line", None, [entry for text in texts for entry in assignments(text)])
