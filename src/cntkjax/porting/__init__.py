"""Source of models for other libraries."""

from . import layers as _layers  # they fill the table
from . import operations as _operations
from . import script_calls as _script_calls
from . import script_layers as _script_layers
from . import sequences as _sequences
from .package import TARGETS, port
from .tree import PortError

__all__ = ["TARGETS", "PortError", "port"]
