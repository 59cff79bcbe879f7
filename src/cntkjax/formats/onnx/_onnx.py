"""The onnx package, imported when a model is read or written, and its element types."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np

from ..._typing import DTypeLike


def onnx() -> ModuleType:
    """The package. Errors: ImportError, with the command that installs it, if it is missing."""
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


def element_type(dtype: DTypeLike | None) -> int:
    """The number of a NumPy type in an ONNX file."""
    return ELEMENT[np.dtype(dtype).type]
