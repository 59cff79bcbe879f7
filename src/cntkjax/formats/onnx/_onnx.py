"""The onnx package, loaded when a model in its format is read or written, and what types are called there."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def onnx() -> Any:
    """The package; ImportError with the line that installs it if it is missing."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            'reading and writing ModelFormat.ONNX needs the package onnx: pip install "cntkjax[onnx]"'
        ) from error


# The numbers are those of onnx.TensorProto.DataType.
ELEMENT: dict[type, int] = {np.float32: 1, np.int8: 3, np.int16: 5, np.float16: 10, np.float64: 11}
INT32, INT64, BOOL = 6, 7, 9
FLOATING = {1: np.float32, 10: np.float16, 11: np.float64}


def element_type(dtype: Any) -> int:
    """The number of a NumPy type of CNTK's in an ONNX file."""
    return ELEMENT[np.dtype(dtype).type]
