"""What the command line and the files that it names assign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .block import Block
from .parsing import Entry, assignments
from .source import COMMAND_LINE, Place, Text, content_of, find_file

_DEPTH = 50  # of includes


def load(arguments: Sequence[str]) -> Block:
    """The configuration of a command line: ``configFile=a+b`` and ``key=value``, from left to right.

    Errors: ConfigError for what is no configuration; OSError for files that cannot be read.
    """
    root = Block("the configuration", None)
    read: set[Path] = set()
    for argument in arguments:
        text = Text(COMMAND_LINE, argument)
        if "=" not in argument and not argument.startswith("["):
            hint = "cntk --help shows how" if argument.startswith("-") else f"a file is given by configFile={argument}"
            raise text.at(0).error(f"{argument} is no key = value; {hint}")
        if argument.startswith("["):
            text = text.part(1, _end_of_list(text))
        for entry in assignments(text):
            if entry.name.lower() == "configfile":
                for name in entry.value.content.strip("\"'").split("+"):
                    root.add_all(read_file(name.strip(), entry.place, read, root))
            elif "." in entry.name:
                *blocks, key = entry.name.split(".")
                nested = "".join(f"{block}=[" for block in blocks) + f"{key}={entry.value.content}" + "]" * len(blocks)
                raise entry.place.error(f"{entry.name} is no name: write {nested}")
            else:
                root.add(entry)
    return root


def _end_of_list(text: Text) -> int:
    end = text.closing[0]
    if text.content[end + 1 :].strip():
        raise text.at(end + 1).error("nothing may follow the list; give it as an argument of its own")
    return end


def read_file(name: str, place: Place, read: set[Path], root: Block, depth: int = 0) -> Iterator[Entry]:
    """What a file assigns, and the files that it includes, each of them once.

    `root`: what is assigned so far: names of included files may have ``$name$``.
    Errors: ConfigError if there is no such file, or it is no text.
    """
    if depth > _DEPTH:
        raise place.error(f"more than {_DEPTH} files include each other")
    path = find_file(name, place)
    if path.resolve() in read:
        return
    read.add(path.resolve())
    content = content_of(path)
    if "\0" in content:
        raise place.error(f"{path} is no text in UTF-8")
    for entry in assignments(Text(str(path), content, None if depth == 0 else place)):
        if entry.name.lower() == "include":
            included = root.expand(entry.value).content.strip("\"'")
            yield from read_file(included, entry.place, read, root, depth + 1)
        else:
            yield entry


__all__ = ["load", "read_file"]
