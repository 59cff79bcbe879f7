"""Compiles for a device that this machine does not have: what a script runs first is traced for it, not executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import jax

from ..._typing import PyTree
from ..xla.platform import lowering_for


class TracedForAnotherDevice(Exception):
    """Raised instead of compiling a program, which is left as it was. `inputs`: what it would have run on."""

    def __init__(self, traced: jax.stages.Traced, inputs: PyTree) -> None:
        super().__init__("traced for another device, and not run")
        self.traced, self.inputs = traced, inputs


@dataclass(frozen=True)
class Target:
    """A device; `sharding` places arrays on it."""

    sharding: jax.sharding.Sharding


_target: ContextVar[Target | None] = ContextVar("target", default=None)


@contextmanager
def tracing_for(platform: str, sharding: jax.sharding.Sharding) -> Iterator[None]:
    """A scope in which a program that has to be compiled raises `TracedForAnotherDevice`.

    `platform`: that of the lowering (`engine/xla/platform.py`). `sharding`: of a device of that platform, for example
    one of `jax.experimental.topologies`. Minibatches get no room for larger ones: their shapes are those in which they
    would run after some minibatches.
    """
    token = _target.set(Target(sharding))
    try:
        with lowering_for(platform):
            yield
    finally:
        _target.reset(token)


def is_tracing_elsewhere() -> bool:
    """Whether this is such a scope."""
    return _target.get() is not None


def trace_elsewhere(jitted: jax.stages.Wrapped, inputs: PyTree) -> None:
    """In such a scope, trace a function for shapes on the other device, and raise `TracedForAnotherDevice`."""
    target = _target.get()
    if target is None:
        return

    def shape(array: object) -> jax.ShapeDtypeStruct:
        aval = jax.typeof(array)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=target.sharding)

    raise TracedForAnotherDevice(jitted.trace(*jax.tree.map(shape, inputs)), inputs)


__all__ = ["TracedForAnotherDevice", "is_tracing_elsewhere", "trace_elsewhere", "tracing_for"]
