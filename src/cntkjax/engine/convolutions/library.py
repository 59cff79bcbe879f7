"""The library of `convolution.c`, which XLA calls, if it was built: see `cntkjax._build_native`."""

from __future__ import annotations

import ctypes
from functools import cache

import jax

from ..._build_native import CONVOLUTION

_VERSION = 1  # as in convolution.c
TARGET = f"cntkjax_convolution_{_VERSION}"  # the name of the function; stored programs hold it


@cache
def library() -> ctypes.CDLL | None:
    """The library; None if it is missing, from another version of its source, or not for this processor."""
    if CONVOLUTION is None:
        return None
    try:
        loaded = ctypes.CDLL(str(CONVOLUTION.path))
        return loaded if loaded.cntkjax_convolution_version() == _VERSION else None
    except (OSError, AttributeError):
        return None


@cache
def register() -> None:
    """Tell XLA of the function, for programs that call it."""
    loaded = library()
    if loaded is not None:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(loaded.cntkjax_convolution), platform="cpu")


__all__ = ["TARGET", "library", "register"]
