"""The library of `convolution.c`, which XLA calls, if it was built: see `cntkjax._build_native`."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import jax

from ..._build_native import CONVOLUTIONS

_VERSION = 2  # as in convolution.c
_INTERFACE = "0"  # the major version of XLA's foreign function interface that its structs are those of
TARGET = f"cntkjax_convolution_{_VERSION}"  # the name of the function; stored programs hold it


@cache
def library() -> ctypes.CDLL | None:
    """The one with the widest vectors that this processor has; None without any, or for another version of jaxlib."""
    return next(filter(None, (load(each.path) for each in CONVOLUTIONS)), None)


def load(path: Path) -> ctypes.CDLL | None:
    """The library, unless it is missing, from another version of its source, or not for this processor or jaxlib."""
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
        loaded = ctypes.CDLL(str(path))
        interface = re.search(r"define XLA_FFI_API_MAJOR (\d+)", header)
        is_known = interface is not None and interface[1] == _INTERFACE
        return loaded if is_known and loaded.cntkjax_convolution_version() == _VERSION else None
    except (OSError, AttributeError):
        return None


@cache
def register() -> None:
    """Tell XLA of the function, for programs that call it."""
    loaded = library()
    if loaded is not None:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(loaded.cntkjax_convolution), platform="cpu")


__all__ = ["TARGET", "library", "load", "register"]
