"""The user's line of code that called the package: named in errors, and where warnings point to."""

from __future__ import annotations

import sys
import warnings
from os.path import basename
from pathlib import Path
from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).resolve().parent)

Place = tuple[CodeType, int]  # the code of a function, and how far it has come


def _user_frame() -> tuple[FrameType | None, int]:
    """The innermost frame outside this package, if there is one, and its distance from who calls this function."""
    frame: FrameType | None = sys._getframe(1)
    distance = 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, distance = frame.f_back, distance + 1
    return frame, distance


def user_place() -> Place | None:
    """Where the innermost frame outside this package is; None if there is none."""
    frame, _ = _user_frame()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def line_of(place: Place | None) -> str:
    """``'train.py:31'`` for a place; '' for None, and where Python itself has called, as by ``python -m cntkjax``."""
    if place is None:
        return ""
    code, instruction = place
    if code.co_filename.startswith("<frozen"):
        return ""
    line = next((line for begin, end, line in code.co_lines() if begin <= instruction < end), None)
    return f"{basename(code.co_filename)}:{line}"


def user_line() -> str:
    """``'train.py:31'`` of the innermost frame outside this package; '' if there is none."""
    return line_of(user_place())


def call_stack() -> str:
    """The end of a message: the user's line under CNTK's title for call stacks, which scripts look for."""
    return f"\n\n[CALL STACK]\n{user_line()}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the user of something at the line that called the package, through any number of its functions."""
    frame, distance = _user_frame()
    warnings.warn(message, category, stacklevel=distance + 1 if frame is not None else distance)


__all__ = ["Place", "call_stack", "line_of", "user_line", "user_place", "warn"]
