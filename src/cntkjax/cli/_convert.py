"""``cntkjax convert``: converts a model to another format."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ..formats import files
from ..formats.safetensors import encode
from ..graph.variable import value_of
from ..interop import leaf_names
from ..ops.functions import Function, ModelFormat
from ._files import check_output, load

FORMATS = {".model": "CNTK 2", ".onnx": "ONNX", ".stablehlo": "StableHLO", ".safetensors": "weights only"}
_LIKE_MODEL = "", ".cmf", ".mod", ".cntk", ".net"  # other names that users of CNTK give to its models


def run(options: argparse.Namespace) -> None:
    """Read a model and write it; an existing file is kept if that fails.

    Errors: ValueError for a format that cannot be written; those of reading and writing.
    """
    if options.out.suffix.lower() == ".dnn":
        raise ValueError("the format of CNTK 1 cannot be written: give OUT another extension, such as .model")
    check_output(options.out, dict.fromkeys(_LIKE_MODEL, "") | FORMATS)
    model = load(options.model)
    match options.out.suffix.lower():
        case ".onnx":
            model.save(str(options.out), format=ModelFormat.ONNX, opset=options.opset)
        case ".stablehlo":
            model.export_stablehlo(options.out)
        case ".safetensors":
            save_weights(model, options.out)
        case _:
            model.save(str(options.out))


def save_weights(model: Function, path: Path) -> None:
    """Write parameters and constants by name in the safetensors format; equal names are numbered."""
    leaves = leaf_names([*model.parameters, *model.constants])
    files.write((path, encode({name: np.asarray(value_of(leaf)) for name, leaf in leaves.items()})))


__all__ = ["run", "save_weights"]
