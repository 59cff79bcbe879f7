"""The onnx package, imported when a model is read or written, its element types and its momentum of statistics."""

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


# ONNX averages statistics of batch normalization per minibatch, CNTK per sample; its files assume this many samples.
MINIBATCH_SAMPLES = 48


def momentum(time_constant: float) -> float:
    """The factor of the old statistics, from CNTK's time constant in samples; rounded as CNTK 2.7 rounds it."""
    if time_constant <= 0:
        return 0.0
    return float(1 - np.float32(1 - np.exp(-MINIBATCH_SAMPLES / time_constant)))


def time_constant(momentum: float) -> float:
    """The inverse of `momentum`: 0 takes the statistics of each minibatch, infinity keeps those of the file."""
    if momentum <= 0:
        return 0.0
    return float(-MINIBATCH_SAMPLES / np.log(momentum)) if momentum < 1 else float("inf")
