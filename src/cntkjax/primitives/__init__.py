"""All primitive operations; importing this package registers them."""

from . import delay, elementwise, fill, product, reduce, reshape, select, sequence, structure
from .base import BY_ID, BY_NAME, Primitive

__all__ = ["BY_ID", "BY_NAME", "Primitive", "delay", "elementwise", "fill", "product", "reduce", "reshape", "select", "sequence", "structure"]
