"""NDL, the older language of networks: assignments, calls and macros; names are in any case."""

from .building import build_network

__all__ = ["build_network"]
