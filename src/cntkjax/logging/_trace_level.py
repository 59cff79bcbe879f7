"""Verbosity of the package's messages."""
from __future__ import annotations

from enum import IntEnum

from ..graph.arguments import public


@public
class TraceLevel(IntEnum):
    """Levels of detail, from errors only to everything.

    >>> TraceLevel.Warning
    <TraceLevel.Warning: 1>
    """

    Error = 0
    Warning = 1
    Info = 2

    def __str__(self) -> str:
        return f"TraceLevel.{self.name}"


class _TraceLevelState:
    level = int(TraceLevel.Warning)


@public
def set_trace_level(value: int) -> None:
    """Set the level of detail to a ``TraceLevel`` or its number.

    Errors: TypeError if it is neither.

    >>> set_trace_level(TraceLevel.Warning)
    """
    if not isinstance(value, int):
        raise TypeError(f"set_trace_level() needs a TraceLevel or an int, not {value!r}")
    _TraceLevelState.level = int(value)


@public
def get_trace_level() -> int:
    """The current level of detail, as a number.

    >>> get_trace_level(), get_trace_level() == TraceLevel.Warning
    (1, True)
    """
    return _TraceLevelState.level
