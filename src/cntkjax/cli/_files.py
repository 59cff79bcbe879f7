"""Models by path, whatever their format."""

from __future__ import annotations

from pathlib import Path

import cntkjax as C


def load(path: Path) -> C.Function:
    """The model in a file: ONNX if it is called so, otherwise one of CNTK's own formats.

    Errors: those of `Function.load`.
    """
    onnx = path.suffix == ".onnx"
    return C.Function.load(str(path), format=C.ModelFormat.ONNX if onnx else C.ModelFormat.CNTKv2)


__all__ = ["load"]
