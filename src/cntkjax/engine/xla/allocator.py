"""Keeping the memory of one step for the next.

XLA on the CPU takes a program's buffers from malloc, and glibc gives large ones back to the system after every step:
the next step then pays a page fault for every 4 KiB (54,000 a step of a small AlexNet, a fifth of its time). Here glibc
is told to keep up to 1 GiB of what is free, in one heap for all threads. It holds for the whole process, for threads
that have not yet asked for memory; `CNTKJAX_KEEP_MEMORY=0` leaves glibc alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

KEEP = 1 << 30
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # mallopt(3)


@cache
def keep_freed_memory() -> bool:
    """Tell glibc, once a process; False where there is no glibc, or it is not wanted."""
    if not sys.platform.startswith("linux") or os.environ.get("CNTKJAX_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # The heap of a thread's own holds 64 MiB at most: more would be mapped anew each time, whatever the rest says.
    return all([mallopt(_TRIM_THRESHOLD, KEEP), mallopt(_MMAP_MAX, 0), mallopt(_ARENA_MAX, 1)])
