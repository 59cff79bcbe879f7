"""The user's line of code that created a node, for error messages."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def user_line() -> str:
    """``'train.py:31'`` of the innermost frame outside this package; '' if there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def call_stack() -> str:
    """The end of a message: the user's line under CNTK's title for call stacks, which scripts look for."""
    return f"\n\n[CALL STACK]\n{user_line()}"
