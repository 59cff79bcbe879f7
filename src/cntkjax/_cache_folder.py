"""The folders in which the package keeps files of its own between processes."""

from __future__ import annotations

import os
from pathlib import Path


def directory(kind: str = "xla") -> str:
    """The directory of compiled programs, or of another kind of files; '' if the cache is off.

    It is ``CNTKJAX_CACHE_DIR``, or else in ``~/.cache/cntkjax``.
    """
    chosen = os.environ.get("CNTKJAX_CACHE_DIR")
    if chosen is None:
        return str(Path.home() / ".cache" / "cntkjax" / kind)
    return chosen if kind == "xla" or not chosen else os.path.join(chosen, kind)


__all__ = ["directory"]
