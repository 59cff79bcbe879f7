"""An ONNX model as a function."""

from __future__ import annotations

from ....graph.function import Node
from ...dictionary import FormatError
from ...files import Source
from . import (  # noqa: F401  (they fill the table)
    constants,
    control,
    elements,
    elementwise,
    fill,
    image,
    learn,
    pooling,
    product,
    quantized,
    random,
    recurrent,
    reduce,
    resize,
    scan,
    shape,
    slices,
)
from .checks import opset_of, parse
from .graph import GraphReader


def load(source: Source) -> Node:
    """The function of an ONNX model, from a path, bytes or an open binary file.

    Inputs, weights and nodes keep their names; weights are parameters, so that they can be trained further.
    Errors: ImportError without the package onnx; FormatError (a ValueError and RuntimeError), with the file, the node,
    its operation and the reason, if the file is damaged or an operation is not supported.
    """
    model, name, folder = parse(source)
    reader = GraphReader(opset_of(model, name), name, folder, from_cntk=model.producer_name == "CNTK")
    try:
        return reader.model(model.graph)
    except RecursionError as error:
        raise FormatError(
            f"{name}: graphs are nested too deep", fix="export the model without nested graphs"
        ) from error


__all__ = ["load"]
