"""The action exportModel: a model for other runtimes, in ONNX."""

from __future__ import annotations

from ...ops import combine
from ...ops.functions import ModelFormat
from ..models import load_network
from ..source import new_file
from .session import Command, outputs

_OPSET = 17  # leaves the size of batches open


def export_model(command: Command) -> None:
    """Write the output nodes of a model to ``outputModelPath``, by default ``modelPath.onnx``."""
    block, network = command.block, load_network(command.model_path)
    names = outputs(network, block)
    path = new_file(block.file("outputModelPath", f"{command.model_path}.onnx"))
    combine([network.nodes[name] for name in names]).save(str(path), ModelFormat.ONNX, opset=_OPSET)
    command.log.line(f"Nodes {', '.join(names)} are written to {path}")


__all__ = ["export_model"]
