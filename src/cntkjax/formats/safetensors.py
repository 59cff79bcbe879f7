"""The safetensors format: arrays by name.

Source: https://github.com/huggingface/safetensors, Format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from .wire import Buffer, FormatError

_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "bool": "BOOL",
}
_NAMES = {name: dtype for dtype, name in _TYPES.items()}


def encode(arrays: Mapping[str, np.ndarray]) -> list[Buffer]:
    """The bytes of a file with these arrays.

    >>> data = b"".join(encode({"W": np.zeros(2, np.float32)}))
    >>> data[8:].rstrip(bytes(8))
    b'{"W": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}   '
    """
    header, offset = {}, 0
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in arrays.items():
        header[name] = {
            "dtype": _TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *(a.reshape(-1).view(np.uint8).data for a in arrays.values())]


def decode(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Errors: FormatError, a ValueError, for anything that is not such a file.

    >>> decode(b"".join(encode({"W": np.ones(2, np.float32)})))
    {'W': array([1., 1.], dtype=float32)}
    """
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {name: _array(data[8 + size :], entry) for name, entry in header.items()}
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"this is no safetensors file, or a damaged one: {error}") from error


def _array(data: bytes, entry: Mapping[str, Any]) -> np.ndarray:
    begin, end = entry["data_offsets"]
    dtype = np.dtype(_NAMES[entry["dtype"]])
    if not 0 <= begin <= end <= len(data) or (end - begin) != prod(entry["shape"]) * dtype.itemsize:
        raise ValueError("the place of an array is not in the file")
    return np.frombuffer(data[begin:end], dtype).reshape(entry["shape"])


__all__ = ["decode", "encode"]
