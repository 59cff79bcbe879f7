"""Calls the library of `steps.c`, if it was built: see `cntkjax._build_native`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..._build_native import STEPS
from ..._threads import cores

_VERSION = 2  # as in steps.c
PRODUCT, LARGEST, MEAN, POINTWISE, COPY, LOOP = range(6)  # kinds of steps
NONE, RELU, SIGMOID, TANH = range(4)  # activations

PLACE = np.dtype([(name, np.int64) for name in ("buffer", "first", "image", "row", "column", "step")])
STEP = np.dtype([
    *((name, np.int64) for name in ("kind", "activation", "images", "rows", "columns", "channels")),
    *((name, PLACE) for name in ("to", "from", "other")),
    *((name, np.int64) for name in ("weights", "bias", "taps", "tap_step", "span", "vectors")),
    ("scratch", PLACE),
    *((name, np.int64, 2) for name in ("window", "stride", "before", "size")),
    *((name, np.int64) for name in ("counts_padding", "multiplies", "from_channel", "to_channel", "steps", "body")),
])  # the structs of the same names in `steps.c`


@dataclass(frozen=True)
class Library:
    """`width`: floats of a vector. `run`: takes addresses and numbers as `cntkjax_steps_run` does."""

    width: int
    run: Callable[[int, int, Any, int], int]


@cache
def library() -> Library | None:
    """The one with the widest vectors that this processor has; None without any."""
    return next(filter(None, (_load(steps.path) for steps in STEPS)), None)


def _load(path: Path) -> Library | None:
    """The library, unless it is missing, was built from another version of the source or for another processor."""
    try:
        loaded = ctypes.CDLL(str(path))
        names = "version", "width", "size", "run"
        version, width, size, run = (getattr(loaded, f"cntkjax_steps_{name}") for name in names)
    except (OSError, AttributeError):
        return None
    version.restype = width.restype = size.restype = run.restype = ctypes.c_int64
    run.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
    if version() != _VERSION or size() != STEP.itemsize or not width():
        return None
    return Library(width(), run)


@cache
def threads() -> int:
    """How many threads compute: those that XLA uses."""
    number = os.environ.get("NPROC", "")
    return min(cores(), int(number)) if number.isdigit() and int(number) else cores()


__all__ = [
    "COPY", "LARGEST", "LOOP", "MEAN", "NONE", "POINTWISE", "PRODUCT", "RELU", "SIGMOID", "STEP", "TANH", "Library",
    "library", "threads",
]
