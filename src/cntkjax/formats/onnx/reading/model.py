"""An ONNX model as a function."""

from __future__ import annotations

from typing import Any

from ...dictionary import FormatError
from . import (  # noqa: F401  (they fill the table)
    elementwise,
    image,
    joined,
    known,
    learn,
    parts,
    product,
    recurrent,
    reduce,
    scan,
    shape,
)
from .checks import opset_of, parsed
from .graph import Reader


def load(source: Any) -> Any:
    """The function of an ONNX model, from a path, bytes or an open binary file.

    Inputs, weights and nodes keep their names; weights are parameters, and so can be trained further.
    Errors: ImportError without the package onnx; FormatError (a ValueError and RuntimeError) with the file, the node,
    its operation and the reason for what is damaged or cannot be read.
    """
    model, name, folder = parsed(source)
    reader = Reader(opset_of(model, name), name, folder, from_cntk=model.producer_name == "CNTK")
    try:
        return reader.model(model.graph)
    except RecursionError as error:
        raise FormatError(f"{name}: graphs are nested too deep") from error


__all__ = ["load"]
