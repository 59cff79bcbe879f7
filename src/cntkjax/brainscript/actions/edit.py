"""The action edit: a model from other models, by a script of MEL or a description in BrainScript."""

from __future__ import annotations

from pathlib import Path

from .. import mel
from ..source import Text, content_of, local_path
from .building import built
from .session import Command


def edit(command: Command) -> None:
    """Run the script of ``editPath``, or write the network that BrainScript describes to ``outputModelPath``."""
    block = command.block
    if "editPath" in block:
        for name in map(local_path, block.array("editPath")):
            text = Text(name, _read(command, name))
            mel.edit(text, block, command.precision)
        return
    command.save(built(command))


def _read(command: Command, name: str) -> str:
    path = Path(name)
    if not path.is_file():
        value = command.block.get("editPath")
        assert value is not None
        raise value.at(0).error(f"there is no file {name}")
    return content_of(path)


__all__ = ["edit"]
