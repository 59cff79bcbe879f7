"""Processes begun by `os.fork`: the threads with which XLA compiles are not in them, so compiling would never end."""

from __future__ import annotations

import os

_compiling: set[int] = set()  # processes that have compiled, forked ones inherit it


def check_not_forked() -> None:
    """To be called before something is compiled.

    Errors: RuntimeError in a process that was forked from one that had compiled.
    """
    if _compiling - {os.getpid()}:
        raise RuntimeError(
            "this process was forked from one that had run programs already, and JAX cannot compile in it; begin it "
            "anew with multiprocessing.get_context('spawn'), or fork before anything is evaluated"
        )
    _compiling.add(os.getpid())


__all__ = ["check_not_forked"]
