"""ONNX models: what CNTK has as functions, read and written.

The readers speak in public operations and layers, so that what they make is what a user would write; nothing else in
`formats` knows these. `Function.save` and `Function.load` find this package through the registry of formats.
"""

from __future__ import annotations

from typing import Any

from ...graph.function import Function
from .. import registry

__all__ = ["load", "save"]


def load(source: Any) -> Function:
    """See `reading.model.load`, which is imported at the first call: few scripts read ONNX."""
    from .reading import model

    return model.load(source)


def save(function: Function, *arguments: Any) -> None:
    """See `writing.model.save`, which is imported at the first call."""
    from .writing import model

    model.save(function, *arguments)


registry.register("ONNX", registry.FileFormat(save, load))
