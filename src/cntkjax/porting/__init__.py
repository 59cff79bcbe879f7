"""Source of models for other libraries."""

from . import layers as _layers  # it fills the table
from .package import TARGETS, port
from .tree import PortError

__all__ = ["TARGETS", "PortError", "port"]
