"""oneDNN's handler for XLA's foreign function interface (`xla/ffi/api/c_api.h` of jaxlib), and what it calls."""

from __future__ import annotations

import ctypes
import os
import warnings
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from importlib.metadata import files
from pathlib import Path

import jax

from .library import Library, OneDnnError, words
from .plans import plan_of_call

TARGET = "cntkjax_onednn"  # the name of the function that XLA calls


def is_chosen() -> bool:
    """Whether the user has asked for it by an environment variable."""
    return os.environ.get("CNTKJAX_ONEDNN") == "1"


@cache
def library() -> Library | None:
    """oneDNN, registered with XLA; None if it is not installed, with a warning.

    Errors: OneDnnError.
    """
    try:
        place = next(Path(file.locate()) for file in files("onednn-cpu-gomp") or () if file.name == "libdnnl.so.3")
        import llvmlite.binding as linker

        from .handler import handler
    except (ImportError, StopIteration):
        warnings.warn(
            "CNTKJAX_ONEDNN=1 has no effect: oneDNN is not installed (pip install 'cntkjax[onednn]')", stacklevel=2
        )
        return None
    loaded = Library(place)
    linker.load_library_permanently(str(place))
    linker.add_symbol("cntkjax_onednn_table", loaded.table.ctypes.data)
    for name, function in {"describe": _describe, "plan": _plan, "fail": _fail}.items():
        linker.add_symbol(f"cntkjax_onednn_{name}", ctypes.cast(function, c_void_p).value)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(c_void_p(handler())), platform="cpu")
    return loaded


_CALLBACK = CFUNCTYPE(c_int64, c_int64)


@_CALLBACK
def _describe(frame: int) -> int:
    """Tell XLA that its handler is written for the version of the interface that it has."""
    extension, interface = words(words(frame, 3)[1], 4), words(words(frame, 3)[2], 5)
    words(extension[3], 4)[3] = interface[4]
    return 0


@_CALLBACK
def _plan(frame: int) -> int:
    """The address of a plan that this process has not made yet: an executable from an earlier process asks for it."""
    loaded = library()
    try:
        return plan_of_call(loaded, frame) if loaded else 0
    except OneDnnError:
        return 0


@_CALLBACK
def _fail(frame: int) -> int:
    """The error that XLA raises."""
    create = CFUNCTYPE(c_int64, c_void_p)(words(words(frame, 3)[2], 7)[6])
    message = ctypes.create_string_buffer(b"oneDNN could not compute a convolution or product (out of memory?)")
    arguments = (c_int64 * 4)(32, 0, ctypes.addressof(message), 13)
    return create(ctypes.addressof(arguments))


__all__ = ["TARGET", "is_chosen", "library"]
