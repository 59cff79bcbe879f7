"""Export of functions as ONNX models, and import.

Readers build graphs of public operations and layers, as a user would; so this package, unlike the rest of `formats`, is
above `layers`. `Node.save` and `Node.load` find it through the registry of formats.
"""

from __future__ import annotations

from typing import Any

from ...graph.function import Node
from .. import registry
from ..files import Source

__all__ = ["load", "save"]


def load(source: Source) -> Node:
    """See `reading.model.load`, which is imported at the first call: few scripts read ONNX."""
    from .reading import model

    return model.load(source)


def save(function: Node, *arguments: Any) -> None:
    """See `writing.model.save`, which is imported at the first call."""
    from .writing import model

    model.save(function, *arguments)


registry.register("ONNX", registry.FileFormat(save, load))
