"""CNTK's configuration language: layered files and arguments, blocks, and the values in them."""

from .block import FILES_ARE_READ, Block
from .files import load
from .parsing import Entry, assignments, elements, inside
from .source import ConfigError, Place, Text

__all__ = [
    "FILES_ARE_READ", "Block", "ConfigError", "Entry", "Place", "Text", "assignments", "elements", "inside", "load",
]  # fmt: skip
