"""How much the package tells about what it does."""
from __future__ import annotations

from enum import IntEnum


class TraceLevel(IntEnum):
    """Levels of detail, from errors only to everything.

    Example:
        >>> TraceLevel.Warning
        <TraceLevel.Warning: 1>
    """

    Error = 0
    Warning = 1
    Info = 2

    def __str__(self) -> str:
        return f"TraceLevel.{self.name}"


class _State:
    level: int = TraceLevel.Warning


def set_trace_level(value: int) -> None:
    """Set the level of detail: a ``TraceLevel`` or its number.

    Errors: TypeError if it is no number.

    Example:
        >>> set_trace_level(TraceLevel.Warning)
    """
    if not isinstance(value, int):
        raise TypeError(f"set_trace_level() needs a TraceLevel or an int, not {value!r}")
    _State.level = value


def get_trace_level() -> int:
    """The level of detail now.

    Example:
        >>> get_trace_level() == TraceLevel.Warning
        True
    """
    return _State.level
