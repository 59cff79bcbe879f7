"""Where output for people goes."""

from __future__ import annotations

import sys


def is_interactive() -> bool:
    """Whether output goes to a terminal or a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()
