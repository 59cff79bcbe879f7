"""Loads models of any format."""

from __future__ import annotations

from pathlib import Path

from ..ops.functions import Function, ModelFormat


def load(path: Path) -> Function:
    """Loads the model in a file: ONNX by its extension, otherwise one of CNTK's formats.

    Errors: those of `Function.load`.
    """
    is_onnx = path.suffix == ".onnx"
    return Function.load(str(path), format=ModelFormat.ONNX if is_onnx else ModelFormat.CNTKv2)


__all__ = ["load"]
