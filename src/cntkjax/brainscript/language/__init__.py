"""BrainScript: from the text of a description to a network."""

from .networks import build_network

__all__ = ["build_network"]
