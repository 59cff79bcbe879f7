"""What commands do: one module an action."""

from .running import ACTIONS, run_commands

__all__ = ["ACTIONS", "run_commands"]
