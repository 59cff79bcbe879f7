"""The user's line of code that called the package: named in errors, and where warnings point to."""

from __future__ import annotations

import sys
import warnings
from os.path import basename
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent)


def _user_frame() -> tuple[FrameType | None, int]:
    """The innermost frame outside this package, if there is one, and its distance from who calls this function."""
    frame: FrameType | None = sys._getframe(1)
    distance = 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, distance = frame.f_back, distance + 1
    return frame, distance


def user_line() -> str:
    """``'train.py:31'`` of the innermost frame outside this package; '' if there is none."""
    frame, _ = _user_frame()
    return "" if frame is None else f"{basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def call_stack() -> str:
    """The end of a message: the user's line under CNTK's title for call stacks, which scripts look for."""
    return f"\n\n[CALL STACK]\n{user_line()}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the user of something at the line that called the package, through any number of its functions."""
    frame, distance = _user_frame()
    warnings.warn(message, category, stacklevel=distance + 1 if frame is not None else distance)


__all__ = ["call_stack", "user_line", "warn"]
