"""Process-wide settings of the engine."""
from __future__ import annotations


class Settings:
    """Read by the engine when it compiles a program.

    deterministic: a script gives the same bits on every run: no measured time decides on what is compiled, and
        accelerators use deterministic algorithms.
    checked: every result is searched for NaN, and an error names the operation that produced it.
    timed: operations are run and timed one by one before each program.
    trace_level: from 1 on, each program reports its operations when it is compiled.
    renaming: functions that have a name may be renamed.
    matmul_precision: of float32 products and convolutions on GPUs, in jax's terms (`device.set_matmul_precision`).
    """

    deterministic: bool = False
    checked: bool = False
    timed: bool = False
    trace_level: int = 0
    renaming: bool = False
    matmul_precision: str = "float32"
