"""``cntkjax convert``: converts a model to another format."""

from __future__ import annotations

import argparse

from ..interop import save_weights
from ..ops.functions import ModelFormat
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


__all__ = ["run"]
