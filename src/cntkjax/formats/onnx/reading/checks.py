"""Validation of ONNX files: sizes, names, nesting, and the places of external data."""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ... import files
from ...dictionary import FormatError
from ...files import Source
from .._onnx import onnx

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

MAX_DEPTH = 20  # of nested graphs
MAX_UNROLLED = 10_000  # nodes of the iterations of a loop, with those of the loops in it
MAX_INLINED = 100_000  # nodes, with those of the functions that they call
LARGEST = 2**27  # elements of a tensor that a node creates from a few numbers
_RANK = 32
DTYPES: dict[int, type] = {  # by onnx.TensorProto.DataType
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}
_FIELDS = {1: "float_data", 11: "double_data", 7: "int64_data", 12: "uint64_data", 13: "uint64_data"}


def parse(source: Source) -> tuple[ModelProto, str, Path | None]:
    """The ModelProto, a name of the file for error messages, and the folder that may contain its external data.

    Errors: FormatError if the file is no ONNX model; those of `files.read`.
    """
    data, name = files.read(source, "ONNX model")
    model = onnx().ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except Exception as error:  # protobuf's DecodeError, which is not public
        raise FormatError(f"{name} is no ONNX model, or damaged: {error}") from error
    if not model.opset_import or not model.HasField("graph"):
        raise FormatError(f"{name} is no ONNX model, or damaged: it has no graph or names no opset")
    return _inlined(model, name), name, Path(source).resolve().parent if isinstance(source, str | os.PathLike) else None


def _inlined(model: ModelProto, name: str) -> ModelProto:
    """The model with the nodes of its functions in the place of their calls."""
    if not model.functions:
        return model
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[NodeProto], depth: int) -> int:
        if depth > MAX_DEPTH:
            raise FormatError(f"{name}: functions call each other deeper than {MAX_DEPTH} levels")
        total = 0
        for node in nodes:
            function = node.domain, node.op_type
            if function in bodies and function not in counts:
                counts[function] = count(bodies[function], depth + 1)
            inner = (n for a in node.attribute for g in (a.g, *a.graphs) for n in g.node)
            total += counts.get(function, 1) + count(inner, depth + 1)
        return total

    if count(model.graph.node, 0) > MAX_INLINED:
        raise FormatError(f"{name} has more than {MAX_INLINED} nodes when its functions are inlined")
    inliner = importlib.import_module("onnx.inliner")
    return inliner.inline_local_functions(model)


def opset_of(model: ModelProto, name: str) -> int:
    """The version of the standard operations. Errors: FormatError if it is not supported."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    version = versions.get("", versions.get("ai.onnx", 0))
    newest = 28
    if not 1 <= version <= newest:
        raise FormatError(
            f"{name} is of opset {version}; 1 to {newest} can be read",
            fix="convert the model with onnx.version_converter, or export it with another opset",
        )
    return int(version)


def array_of(tensor: TensorProto, where: str, folder: Path | None) -> np.ndarray:
    """The values of a TensorProto. Errors: FormatError if they are missing or do not fit the shape."""
    where = f"{where}, tensor {tensor.name!r}"
    shape = tuple(tensor.dims)
    if len(shape) > _RANK or any(d < 0 for d in shape):
        raise FormatError(f"{where} has the shape {shape}")
    if tensor.data_type not in DTYPES:
        kind = onnx().TensorProto.DataType
        known = tensor.data_type in kind.values()
        raise FormatError(f"{where}: elements of type {kind.Name(tensor.data_type) if known else tensor.data_type}")
    dtype, count = np.dtype(DTYPES[tensor.data_type]), prod(shape)
    if tensor.data_location == onnx().TensorProto.EXTERNAL:
        return _external(tensor, where, folder, dtype, count).reshape(shape)
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * dtype.itemsize:
            raise FormatError(
                f"{where} of shape {shape} has {len(tensor.raw_data)} bytes, not {count * dtype.itemsize}"
            )
        return np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    values = getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data"))
    if len(values) != count:
        raise FormatError(f"{where} of shape {shape} has {len(values)} values, not {count}")
    if tensor.data_type == 10:  # the bits of half precision are stored as integers
        return np.asarray(values, np.int64).astype(np.uint16).view(np.float16).reshape(shape)
    return np.asarray(values).astype(dtype).reshape(shape)


def _external(tensor: TensorProto, where: str, folder: Path | None, dtype: np.dtype, count: int) -> np.ndarray:
    """Values from another file, which has to be in the folder of the model."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise FormatError(f"{where} is in the file {location!r}", fix="load the model by its path, not from bytes")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise FormatError(
            f"{where} is in {location!r}, outside of the folder of the model",
            fix="save the model again with onnx.save, with its external data in the same folder",
        )
    if not path.is_file():
        raise FormatError(
            f"{where} is in {str(path)!r}: there is no such file", fix="copy this file next to the model"
        )
    numbers = [entries.get("offset") or "0", entries.get("length") or str(count * dtype.itemsize)]
    if not all(n.isdecimal() and len(n) < 20 for n in numbers):
        raise FormatError(f"{where}: offset and length have to be numbers, not {numbers}")
    offset, length = map(int, numbers)
    if length != count * dtype.itemsize or offset + length > path.stat().st_size:
        raise FormatError(f"{where}: {count * dtype.itemsize} bytes at {offset} are not in {str(path)!r}")
    with path.open("rb") as file:
        file.seek(offset)
        return np.frombuffer(file.read(length), dtype.newbyteorder("<")).astype(dtype)


def checked_nodes(nodes: Iterable[NodeProto], known: Collection[str], where: str) -> list[NodeProto]:
    """The nodes of a graph, which has to list operands first; `known`: the tensors that exist before.

    Errors: FormatError for a tensor that is used before it is computed, or computed twice; so there are no cycles.
    """
    available = set(known)
    checked = []
    for i, node in enumerate(nodes):
        node_where = f"{where}, node {node.name or i!r} ({node.op_type})"
        missing = next((n for n in node.input if n and n not in available), None)
        if missing is not None:
            raise FormatError(
                f"{node_where}: its input {missing!r} is no input of the graph, initializer or earlier output"
            )
        for name in node.output:
            if name and name in available:
                raise FormatError(f"{node_where}: there is already a tensor {name!r}")
        available.update(n for n in node.output if n)
        checked.append(node)
    return checked


def check_size(count: int, where: str) -> None:
    """Errors: FormatError for a constant of absurd size, before its memory is allocated."""
    if count > LARGEST:
        raise FormatError(f"{where}: a constant of {count} elements; {LARGEST} are allowed")
