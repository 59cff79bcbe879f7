"""Reusing the memory of one step in the next.

XLA on the CPU allocates a program's buffers with malloc, and glibc returns large ones to the system after every step:
the next step then pays a page fault for every 4 KiB (54,000 a step of a small AlexNet, a fifth of its time). Here glibc
is configured to keep up to 1 GiB of freed memory, in one heap for all threads. This affects the whole process, except
threads that have allocated memory before; `CNTKJAX_KEEP_MEMORY=0` leaves glibc as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

KEPT_BYTES = 1 << 30
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # mallopt(3)


@cache
def keep_freed_memory() -> bool:
    """Configure glibc, once a process; False where there is no glibc, or the environment turns it off."""
    if not sys.platform.startswith("linux") or os.environ.get("CNTKJAX_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # A thread's own heap holds at most 64 MiB: anything larger would be mapped each time, whatever the thresholds are.
    return all([mallopt(_TRIM_THRESHOLD, KEPT_BYTES), mallopt(_MMAP_MAX, 0), mallopt(_ARENA_MAX, 1)])
