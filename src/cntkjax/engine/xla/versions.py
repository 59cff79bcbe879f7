"""Differences between versions of JAX."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax


def double_precision(wanted: bool) -> AbstractContextManager:
    """A scope in which float64 stays float64; nothing outside it changes."""
    return jax.enable_x64(True) if wanted else nullcontext()
