"""What an ONNX file says is checked before it is believed: sizes, names, nesting, and where external data lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import files
from ...dictionary import FormatError
from .._onnx import onnx

DEEPEST = 20  # graphs within graphs
LARGEST = 2**26  # elements of a tensor that a node makes of a few numbers
_RANK = 32
_DTYPES: dict[int, Any] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip
_FIELDS = {1: "float_data", 11: "double_data", 7: "int64_data", 12: "uint64_data", 13: "uint64_data"}


def parsed(source: Any) -> tuple[Any, str, Path | None]:
    """The ModelProto, what to call the file, and the folder in which its external data may lie."""
    data, name = files.read(source, "ONNX model")
    model = onnx().ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except Exception as error:  # protobuf's DecodeError, which is not public
        raise FormatError(f"{name} is no ONNX model, or damaged: {error}") from error
    if not model.opset_import or not model.HasField("graph"):
        raise FormatError(f"{name} is no ONNX model, or damaged: it has no graph or names no opset")
    folder = None if isinstance(source, bytes | bytearray | memoryview) or hasattr(source, "read") else Path(source)
    return model, name, folder.resolve().parent if folder is not None else None


def opset_of(model: Any, name: str) -> int:
    """The version of the standard operations; FormatError if it is none that is known."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    version = versions.get("", versions.get("ai.onnx", 0))
    newest = 26
    if not 7 <= version <= newest:
        raise FormatError(f"{name} is of opset {version}; 7 to {newest} can be read")
    return int(version)


def array_of(tensor: Any, where: str, folder: Path | None) -> np.ndarray:
    """The values of a TensorProto."""
    where = f"{where}, tensor {tensor.name!r}"
    shape = tuple(tensor.dims)
    if len(shape) > _RANK or any(d < 0 for d in shape):
        raise FormatError(f"{where} has the shape {shape}")
    if tensor.data_type not in _DTYPES:
        kind = onnx().TensorProto.DataType
        known = tensor.data_type in kind.values()
        raise FormatError(f"{where}: elements of type {kind.Name(tensor.data_type) if known else tensor.data_type}")
    dtype, count = np.dtype(_DTYPES[tensor.data_type]), prod(shape)
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
    if tensor.data_type == 10:  # the bits of half precision stand in integers
        return np.asarray(values, np.int64).astype(np.uint16).view(np.float16).reshape(shape)
    return np.asarray(values).astype(dtype).reshape(shape)


def _external(tensor: Any, where: str, folder: Path | None, dtype: np.dtype, count: int) -> np.ndarray:
    """Values from another file, which has to lie in the folder of the model."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise FormatError(f"{where} stands in the file {location!r}: load the model by its path")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise FormatError(f"{where} stands in {location!r}, outside of the folder of the model")
    if not path.is_file():
        raise FormatError(f"{where} stands in {str(path)!r}: there is no such file")
    numbers = [entries.get("offset") or "0", entries.get("length") or str(count * dtype.itemsize)]
    if not all(n.isdecimal() and len(n) < 20 for n in numbers):
        raise FormatError(f"{where}: offset and length have to be numbers, not {numbers}")
    offset, length = map(int, numbers)
    if length != count * dtype.itemsize or offset + length > path.stat().st_size:
        raise FormatError(f"{where}: {count * dtype.itemsize} bytes at {offset} are not in {str(path)!r}")
    with path.open("rb") as file:
        file.seek(offset)
        return np.frombuffer(file.read(length), dtype.newbyteorder("<")).astype(dtype)


def in_order(nodes: Iterable[Any], known: Mapping[str, Any], where: str) -> list[Any]:
    """Nodes, operands first, as a graph has to have them; FormatError for a tensor that is used before it is made.

    What makes a tensor twice is an error too; so there are no cycles.
    """
    made = set(known)
    checked = []
    for i, node in enumerate(nodes):
        at = f"{where}, node {node.name or i!r} ({node.op_type})"
        missing = next((n for n in node.input if n and n not in made), None)
        if missing is not None:
            raise FormatError(f"{at}: its input {missing!r} is no input of the graph, initializer or earlier output")
        for name in node.output:
            if name and name in made:
                raise FormatError(f"{at}: there is another tensor {name!r} already")
        made.update(n for n in node.output if n)
        checked.append(node)
    return checked


def limited(count: int, where: str) -> None:
    """FormatError for a tensor of absurd size, before memory is taken for it."""
    if count > LARGEST:
        raise FormatError(f"{where}: a constant of {count} elements; {LARGEST} are allowed")
