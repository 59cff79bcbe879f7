"""``cntkjax convert``: converts a model to another format."""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

import numpy as np

from ..formats import files
from ..graph.variable import value_of
from ..interop import leaf_names
from ..ops.functions import Function, ModelFormat
from ._files import check_output, load

FORMATS = {".model": "CNTK 2", ".onnx": "ONNX", ".stablehlo": "StableHLO", ".safetensors": "weights only"}
_LIKE_MODEL = "", ".cmf", ".mod", ".cntk", ".net"  # other names that users of CNTK give to its models
_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int16": "I16"}


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
    """Write parameters and constants by name in the safetensors format; equal names are numbered.

    Source: https://github.com/huggingface/safetensors, Format.
    """
    leaves = leaf_names([*model.parameters, *model.constants])
    arrays = {name: np.ascontiguousarray(value_of(leaf)) for name, leaf in leaves.items()}
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
    files.write((path, [struct.pack("<Q", len(text)), text, *data]))


__all__ = ["run", "save_weights"]
