"""Traces for a device that this machine does not have: the first program that a script runs is traced, not run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import jax

from cntkjax.engine.data.shapes import MinibatchSpace
from cntkjax.engine.run.program import Program
from cntkjax.engine.xla.platform import lowering_for, matmul_precision
from cntkjax.engine.xla.versions import double_precision


class Trace(NamedTuple):
    """A traced program, and what it would have run on."""

    traced: jax.stages.Traced
    inputs: Any


class _Traced(Exception):
    """Ends a script at its first program."""


def trace_for(platform: str, sharding: jax.sharding.Sharding, script: Callable[[], object]) -> Trace:
    """The first program that a script runs, traced for a device; the script ends there.

    `platform`: that of the lowering (`engine/xla/platform.py`). `sharding`: of a device of that platform, for example
    one of `jax.experimental.topologies`. Minibatches get no room for larger ones: their shapes are those in which they
    would run after some minibatches.

    Errors: RuntimeError if it runs no program.
    """
    traces: list[Trace] = []

    def shape(array: object) -> jax.ShapeDtypeStruct:
        aval = jax.typeof(array)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)

    def trace(
        program: Program, minibatch: Any, leaves: Any, random: Any, donated: Any = (), extra: Any = (), *_: object,
        **__: object,
    ) -> None:
        inputs = program.inputs(minibatch, leaves, random, donated, extra)
        jitted = program.executables.compiler.jitted
        with double_precision(program.plan.is_double), matmul_precision():
            traces.append(Trace(jitted.trace(*jax.tree.map(shape, inputs)), inputs))
        raise _Traced

    tightest = patch.object(MinibatchSpace, "with_room", lambda space, need, seen: space.tightest(need))
    with lowering_for(platform), patch.object(Program, "__call__", trace), tightest, suppress(_Traced):
        script()
    if not traces:
        raise RuntimeError("the script runs no program")
    return traces[0]
