"""Unique ids of variables and functions, numbered as in CNTK: one counter for all kinds."""

from __future__ import annotations

import itertools

_COUNTER = itertools.count(3)  # CNTK has used three numbers when a script's first variable is made


def new_uid(kind: str) -> str:
    """``'Times7'`` for kind 'Times'."""
    return f"{kind}{next(_COUNTER)}"


def skip_uid() -> None:
    """Skip one number, where CNTK uses it for an internal object."""
    next(_COUNTER)
