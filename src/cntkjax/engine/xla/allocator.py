"""Reusing the memory of one step in the next.

XLA on the CPU allocates a program's buffers with malloc, and glibc returns large ones to the system after every step:
the next step then pays a page fault for every 4 KiB (54,000 a step of a small AlexNet, a fifth of its time). Here glibc
is configured to keep up to 1 GiB of freed memory, in one heap for all threads. This affects the whole process, except
threads that have allocated memory before, so it is done at import, if programs will run on the CPU, as far as that is
known then. `CNTKJAX_KEEP_MEMORY=0` leaves glibc as it is.

Compiling allocates many small pieces, and those that stay keep the pages around them: after 500 small programs, of
which 64 are kept, half of a heap of 290 MB was free. So after every 64 programs free pages are returned (20 ms).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec
from itertools import count

KEPT_BYTES = 1 << 30
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # mallopt(3)


_PROGRAMS = 64  # after which free pages are returned
_prepared = count(1)


@cache
def keep_freed_memory() -> bool:
    """Configure glibc, once a process; False where a GPU computes, there is no glibc, or the environment says so."""
    libc = _libc()
    if libc is None or _gpu_computes():
        return False
    # A thread's own heap holds at most 64 MiB: anything larger would be mapped each time, whatever the thresholds are.
    return all([libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES), libc.mallopt(_MMAP_MAX, 0), libc.mallopt(_ARENA_MAX, 1)])


def _gpu_computes() -> bool:
    """Whether JAX will use another device than the CPU; asking JAX itself would initialize it."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return not platforms.startswith("cpu")
    has_driver = any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))  # the latter under WSL
    return has_driver and any(map(find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin")))


def count_program() -> None:
    """To be called after a program was compiled or loaded: now and then this returns the pages that are free."""
    if next(_prepared) % _PROGRAMS == 0 and keep_freed_memory() and (libc := _libc()):
        libc.malloc_trim(0)


@cache
def _libc() -> ctypes.CDLL | None:
    """glibc; None where there is none, or the environment says to leave it alone."""
    if not sys.platform.startswith("linux") or os.environ.get("CNTKJAX_KEEP_MEMORY") == "0":
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
