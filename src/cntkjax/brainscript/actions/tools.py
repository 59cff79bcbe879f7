"""The action dumpNode: nodes of a model as text."""

from __future__ import annotations

import re

from ...sgd import ConfigError
from ..mel.models import described
from ..models import load_network
from ..source import new_file
from .session import Command, named_nodes


def dump_nodes(command: Command) -> None:
    """Write nodes as text, with their values unless printValues = false, and their names unless printMetadata is."""
    block, network = command.block, load_network(command.model_path)
    names = [*network.nodes]
    if "nodeNameRegex" in block:
        expression = pattern(block.text("nodeNameRegex"))
        names = [name for name in names if expression.fullmatch(name)]
    elif "nodeName" in block:
        names = named_nodes(network, block, "nodeName")
    path = new_file(block.file("outputFile", f"{command.model_path}.__AllNodes__.txt"))
    values, metadata = block.flag("printValues", True), block.flag("printMetadata", True)
    lines = [line for name in sorted(names) for line in described(network, name, values, metadata)]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    command.log.line(f"{len(names)} nodes are written to {path}")


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of a user. Errors: ConfigError if it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text} is no regular expression: {error}") from None


__all__ = ["dump_nodes", "pattern"]
