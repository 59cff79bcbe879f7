"""Differences between versions of JAX."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax


def double_precision(enabled: bool) -> AbstractContextManager:
    """A scope in which JAX keeps float64, if enabled; its settings outside do not change."""
    return jax.enable_x64(True) if enabled else nullcontext()


def c_function(compiled: jax.stages.Compiled) -> Callable[..., Any] | None:
    """What an executable runs when it is called, if that is a function in C; otherwise None.

    `Compiled.__call__` itself is written in Python: an exception that arrives when it returns would lose its outputs.
    """
    create = getattr(compiled._executable, "create_cpp_call", None)
    function = create(compiled._params) if create is not None and hasattr(compiled, "_params") else None
    return function if isinstance(function, type(jax.jit(abs))) else None
