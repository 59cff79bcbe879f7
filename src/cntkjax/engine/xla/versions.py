"""Differences between versions of JAX."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax


def double_precision(enabled: bool) -> AbstractContextManager:
    """A scope in which JAX keeps float64, if enabled; its settings outside do not change."""
    return jax.enable_x64(True) if enabled else nullcontext()
