"""Values that a program computes once and stores.

XLA on the CPU recomputes cheap values in every fusion that reads them: the weight gradient of a convolution, which
reads its operand transposed, thus repeats all normalizations, activations and shortcuts below it, element by element. A
barrier prevents that, as XLA is configured to keep barriers until after fusion (compiler.py). A ResNet-56 takes 379
instead of 489 ms a minibatch of 32 (two cores), and half the processor time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import lax

from ..._typing import Array
from .compiler import KEPT_BARRIERS, compiler_options
from .platform import platform

_STORES_VALUES = ContextVar("_STORES_VALUES", default=False)


@contextmanager
def storing_values(stores: bool) -> Iterator[None]:
    """Whether `materialized` stores values in what is traced: in programs of this package, as others compile without
    the option, but not in a step that is traced with its gradient, where XLA of jax 0.12 does not compile barriers.
    """
    token = _STORES_VALUES.set(stores)
    try:
        yield
    finally:
        _STORES_VALUES.reset(token)


def stores_values() -> bool:
    """Whether `materialized` has an effect here: within `storing_values`, if XLA has an option for it."""
    return _STORES_VALUES.get() and (platform() != "cpu" or KEPT_BARRIERS.items() <= compiler_options().items())


def materialized(x: Array) -> Array:
    """The value, stored in memory for all its readers, including gradients; unchanged unless `stores_values`."""
    if not stores_values():
        return x
    return _stored(x) if platform() == "cpu" else lax.optimization_barrier(x)


@jax.custom_jvp
def _stored(x: Array) -> Array:
    """A barrier behind a value that nothing else reads: the operand times 1, which XLA does not see through.

    A barrier's result is its operand's array. Where a kernel reads both, XLA looks only at how it reads the operand
    before it lets the kernel write its result over them. With `lax.optimization_barrier(x)` alone, the kernel of
    exp(x) + reversed(barrier(exp(x))) would thus read what it has written (jax 0.10 and 0.12).
    """
    return lax.optimization_barrier(x * lax.optimization_barrier(jnp.ones((), x.dtype)))


@_stored.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _stored(*primals), tangents[0]
