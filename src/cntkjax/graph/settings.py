"""Settings of the process that the engine obeys."""
from __future__ import annotations


class Settings:
    """Read by the engine when it compiles a program.

    deterministic: the same program gives the same bits, whatever the device; only accelerators need to be told.
    checked: every result is searched for NaN, and an error names the operation that brought it forth.
    timed: operations are run and timed one by one before each program.
    trace_level: from 1 on, each program tells what it is made of when it is compiled.
    renaming: a name that a function has may be changed.
    """

    deterministic: bool = False
    checked: bool = False
    timed: bool = False
    trace_level: int = 0
    renaming: bool = False
