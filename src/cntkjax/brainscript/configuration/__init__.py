"""The configuration language: layered files and arguments, blocks, and the values in them."""

from .block import Block
from .files import load
from .parsing import Entry, assignments, elements, inside

__all__ = ["Block", "Entry", "assignments", "elements", "inside", "load"]
