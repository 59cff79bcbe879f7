"""CNTK wraps what its compiled module returns in Python classes; here everything is one already."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def typemap(f: F) -> F:
    """The function itself; scripts that extend CNTK decorate theirs with it.

    >>> typemap(len) is len
    True
    """
    return f


def map_if_possible(obj: object) -> None:
    """Nothing needs to be done.

    >>> map_if_possible(3)
    """


__all__ = ["map_if_possible", "typemap"]
