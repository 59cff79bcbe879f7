"""The action edit: a model from other models, by a script of MEL or a description in BrainScript."""

from __future__ import annotations

from .. import mel
from ..language.networks import include_file
from .building import built
from .session import Command


def edit(command: Command) -> None:
    """Run the scripts of ``editPath``, or write the network that BrainScript describes to ``outputModelPath``."""
    block = command.block
    if (value := block.get("editPath")) is None:
        command.save(built(command))
        return
    for name in block.array("editPath"):
        mel.edit(include_file(name, value.at(0)), block, command.precision)


__all__ = ["edit"]
