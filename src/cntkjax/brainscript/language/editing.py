"""Networks that exist already, in descriptions: loading, editing, and functions that clone parts."""

from __future__ import annotations

from .values import Builtin


def editing_functions(precision: str) -> list[Builtin]:
    """The functions of BS.Network."""
    return []


__all__ = ["editing_functions"]
