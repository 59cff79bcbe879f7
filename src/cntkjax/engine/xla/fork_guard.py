"""Processes started by `os.fork`: they lack the threads with which XLA compiles, so compiling would never end."""

from __future__ import annotations

import os

_compiling: set[int] = set()  # ids of the processes that have compiled; a forked process inherits it


def check_not_forked() -> None:
    """Refuse to compile where that would hang; to be called before a program is compiled.

    Errors: RuntimeError in a process that was forked from one that had compiled.
    """
    if _compiling - {os.getpid()}:
        raise RuntimeError(
            "this process was forked from one that had already run programs, so JAX cannot compile in it. Fix: start "
            "it with multiprocessing.get_context('spawn'), or fork before anything is evaluated"
        )
    _compiling.add(os.getpid())


__all__ = ["check_not_forked"]
