"""Actions on files of models: edit, dumpNode and exportModel."""

from __future__ import annotations

import re

from ...ops import combine
from ...ops.functions import ModelFormat
from ...sgd import ConfigError
from .. import mel
from ..language.networks import include_file
from ..mel.models import described
from ..models import load_network
from ..writing import new_file, write_lines
from .building import built
from .session import Command, named_nodes, outputs

_OPSET = 17  # of ONNX; leaves the size of batches open


def edit(command: Command) -> None:
    """Run the scripts of ``editPath``, or write the network that BrainScript describes to ``outputModelPath``."""
    block = command.block
    if (value := block.get("editPath")) is None:
        command.save(built(command))
        return
    for name in block.array("editPath"):
        mel.edit(include_file(name, value.at(0)), block, command.precision)


def dump_nodes(command: Command) -> None:
    """Write nodes as text, with their values unless printValues = false, and their names unless printMetadata is."""
    block, network = command.block, load_network(command.model_path)
    names = [*network.nodes]
    if "nodeNameRegex" in block:
        expression = pattern(block.text("nodeNameRegex"))
        names = [name for name in names if expression.fullmatch(name)]
    elif "nodeName" in block:
        names = named_nodes(network, block, "nodeName")
    path = block.file("outputFile", f"{command.model_path}.__AllNodes__.txt")
    values, metadata = block.flag("printValues", True), block.flag("printMetadata", True)
    write_lines(path, (line for name in sorted(names) for line in described(network, name, values, metadata)))
    command.log.line(f"{len(names)} nodes are written to {path}")


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of a user. Errors: ConfigError if it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text} is no regular expression: {error}") from None


def export_model(command: Command) -> None:
    """Write the output nodes of a model to ``outputModelPath``, by default ``modelPath.onnx``."""
    block, network = command.block, load_network(command.model_path)
    names = outputs(network, block)
    path = new_file(block.file("outputModelPath", f"{command.model_path}.onnx"))
    combine([network.nodes[name] for name in names]).save(str(path), ModelFormat.ONNX, opset=_OPSET)
    command.log.line(f"Nodes {', '.join(names)} are written to {path}")


__all__ = ["dump_nodes", "edit", "export_model", "pattern"]
