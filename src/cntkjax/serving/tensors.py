"""Tensors in requests and answers of the Open Inference Protocol: JSON, and raw bytes that follow it.

Source: the protocol's specification, https://github.com/kserve/open-inference-protocol, and its extension for binary
tensor data, https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..core import Value
from ..graph.variable import Edge

Tensor: TypeAlias = "np.ndarray | Value"

DATATYPES = {np.dtype(np.float16): "FP16", np.dtype(np.float32): "FP32", np.dtype(np.float64): "FP64"}
INDICES: dict[str, np.dtype[Any]] = {"INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64)}


_LACKING = "classification", "shared_memory_region"  # parameters of tensors, by Triton's other extensions


class BadRequest(ValueError):
    """A request that cannot be answered, whatever the state of the server."""


class Query(NamedTuple):
    """A request: tensors by name, the names of the outputs (empty: all), and those which are sent as bytes."""

    id: str | None
    tensors: Mapping[str, Tensor]
    outputs: Sequence[str]
    binary: frozenset[str] | None  # None: all


def dimensions(variable: Edge) -> list[int]:
    """The shape of a variable's tensor: batch, steps, and the axes of a sample; -1 where any size is accepted."""
    lead = [-1] * (0 if not variable.dynamic_axes else 1 if variable.sequence_axis is None else 2)
    return [*lead, *(max(n, -1) for n in variable.shape)]


def description(name: str, variable: Edge) -> dict[str, Any]:
    """What the metadata of a model say of an input or output."""
    return {"name": name, "datatype": DATATYPES[np.dtype(variable.dtype)], "shape": dimensions(variable)}


def decoded(body: bytes, header_length: str | None, inputs: Mapping[str, Edge]) -> Query:
    """The request in a body whose first `header_length` bytes are JSON; without that, all are.

    Errors: BadRequest that says what is wrong with which input.
    """
    length = _header_length(header_length, len(body))
    try:
        request = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is not JSON: {error}") from None
    given = _items(request, "inputs")
    tensors: dict[str, Tensor] = {}
    for item in given:
        name = item.get("name")
        if not isinstance(name, str) or name not in inputs or name in tensors:
            raise BadRequest(f"{name!r:.200} is no input, or is there twice; the inputs are {_names(inputs)}")
        size = _parameters(item).get("binary_data_size")
        end = length if size is None else length + _size(name, size, len(body) - length)
        tensors[name] = _tensor(name, inputs[name], item, body[length:end] if size is not None else None)
        length = end
    if length != len(body):
        raise BadRequest(f"the body goes on for {len(body) - length} bytes after its last tensor")
    if missing := inputs.keys() - tensors.keys():
        raise BadRequest(f"there are no data for the inputs {_names(missing)}")
    outputs = _items(request, "outputs") if request.get("outputs") is not None else []
    for item in (*given, *outputs):
        if lacking := [key for key in _LACKING if key in _parameters(item)]:
            raise BadRequest(f"{item.get('name')!r} needs {lacking[0]!r}, an extension that this server does not have")
    everything = _parameters(request).get("binary_data_output") is True
    binary = frozenset(str(o.get("name")) for o in outputs if _parameters(o).get("binary_data", everything) is True)
    names = [str(o.get("name")) for o in outputs]
    return Query(_id(request), tensors, names, None if everything and not names else binary)


def encoded(query: Query, model: str, values: Mapping[str, np.ndarray]) -> tuple[bytes, int | None]:
    """The body of the answer, and the length of its JSON if tensors follow it as bytes."""
    outputs, buffers = [], []
    for name, array in values.items():
        item: dict[str, Any] = {"name": name, "datatype": DATATYPES[array.dtype], "shape": list(array.shape)}
        if query.binary is None or name in query.binary:
            buffers.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            item["parameters"] = {"binary_data_size": len(buffers[-1])}
        else:
            item["data"] = array.ravel().tolist()
        outputs.append(item)
    answer = {"model_name": model, "model_version": "1", "outputs": outputs}
    header = json.dumps(answer if query.id is None else {**answer, "id": query.id}).encode()
    return b"".join([header, *buffers]), len(header) if buffers else None


def _header_length(text: str | None, available: int) -> int:
    if text is None:
        return available
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= available):
        raise BadRequest(f"Inference-Header-Content-Length is {text!r}, and the body has {available} bytes")
    return int(text)


def _items(request: object, key: str) -> list[dict[str, Any]]:
    items = request.get(key) if isinstance(request, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadRequest(f'the request has to be a JSON object in which "{key}" is a list of objects')
    return items


def _parameters(item: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = item.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _id(request: Mapping[str, Any]) -> str | None:
    return None if request.get("id") is None else str(request["id"])


def _size(name: str, size: object, available: int) -> int:
    if type(size) is not int or not 0 <= size <= available:
        raise BadRequest(f"input {name!r}: binary_data_size is {size!r:.200}, and {available} bytes are left")
    return size


def _tensor(name: str, variable: Edge, item: Mapping[str, Any], raw: bytes | None) -> Tensor:
    """The tensor of an input; of a sparse one whose samples are vectors also that of the indices where they are 1."""
    dtype: np.dtype[Any] = np.dtype(variable.dtype)
    datatype, dims = DATATYPES[dtype], dimensions(variable)
    takes_indices = variable.is_sparse and len(variable.shape) == 1
    is_indices = takes_indices and any(item.get("datatype") == each for each in INDICES)  # it may be a list
    if is_indices:
        datatype, dims, dtype = item["datatype"], dims[:-1], INDICES[item["datatype"]]
    if item.get("datatype") != datatype:
        raise BadRequest(f"input {name!r} is {datatype}, and the request has {item.get('datatype')!r:.200}")
    array = _array(name, _shape(name, dims, item.get("shape")), dtype, item.get("data"), raw)
    return _one_hot(name, variable, array) if is_indices else array


def _shape(name: str, dims: Sequence[int], shape: object) -> list[int]:
    is_shape = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape) and len(shape) == len(dims)
    if not (is_shape and all(d in (-1, n) for d, n in zip(dims, shape, strict=True))):  # type: ignore[call-overload]
        raise BadRequest(f"input {name!r} has the shape {dims}, and the request has {shape!r:.200}")
    return shape  # type: ignore[return-value]


def _array(name: str, shape: Sequence[int], dtype: np.dtype[Any], data: object, raw: bytes | None) -> np.ndarray:
    size = prod(shape)
    if raw is None:
        array = _numbers(name, data, dtype)
        if array.size != size:
            raise BadRequest(f"input {name!r} has {array.size} numbers, and its shape {shape} needs {size}")
        return array.reshape(shape)
    if len(raw) != size * dtype.itemsize:
        raise BadRequest(f"input {name!r} has {len(raw)} bytes, and its shape {shape} needs {size * dtype.itemsize}")
    return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(shape).astype(dtype)


def _numbers(name: str, data: object, dtype: np.dtype[Any]) -> np.ndarray:
    try:
        array = np.asarray(data)
        if dtype.kind == "f" and array.dtype == object and {*map(type, array.flat)} <= {int, float}:
            array = array.astype(np.float64)  # among them are integers of more than 64 bits, as JavaScript writes 1e20
    except (ValueError, OverflowError, RecursionError):
        array = np.asarray(None)
    if not isinstance(data, list) or array.dtype.kind not in ("iu" if dtype.kind == "i" else "iuf"):
        raise BadRequest(f'input {name!r}: "data" has to be a list of {"integers" if dtype.kind == "i" else "numbers"}')
    with np.errstate(over="ignore"):  # the range of indices is checked next, and other numbers become infinite
        return array.astype(np.int64 if dtype.kind == "i" else dtype)


def _one_hot(name: str, variable: Edge, indices: np.ndarray) -> Value:
    (width,) = variable.shape
    if not 0 <= indices.min() <= indices.max() < width:
        extent = f"{indices.min()} to {indices.max()}"
        raise BadRequest(f"input {name!r} takes indices from 0 to {width - 1}, and the request has {extent}")
    return Value.one_hot(indices, width, variable.dtype)


def _names(names: object) -> str:
    return ", ".join(sorted(map(repr, names))) or "none"  # type: ignore[call-overload]


__all__ = ["BadRequest", "Query", "decoded", "description", "encoded"]
