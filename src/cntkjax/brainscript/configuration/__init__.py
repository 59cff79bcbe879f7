"""The configuration language: layered files and arguments, blocks, and the values in them."""

from .block import FILES_ARE_READ, Block
from .files import load
from .parsing import Entry, assignments, elements, inside

__all__ = ["FILES_ARE_READ", "Block", "Entry", "assignments", "elements", "inside", "load"]
