"""The safetensors format: arrays by name.

Source: https://github.com/huggingface/safetensors, Format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import numpy as np

from .wire import Buffer

_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
}


def encode(arrays: Mapping[str, np.ndarray]) -> list[Buffer]:
    """The bytes of a file with these arrays.

    >>> data = b"".join(encode({"W": np.zeros(2, np.float32)}))
    >>> data[8:].rstrip(bytes(8))
    b'{"W": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}   '
    """
    header, offset = {}, 0
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        header[name] = {
            "dtype": _TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *(a.reshape(-1).view(np.uint8).data for a in arrays.values())]


__all__ = ["encode"]
