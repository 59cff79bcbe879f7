"""The public operations of the package, as one object."""

from __future__ import annotations

from types import SimpleNamespace

from ... import initializer, losses, metrics, ops
from ...axis import Axis
from ...variables import Constant, Parameter

PACKAGE = SimpleNamespace(
    **{name: value for module in (losses, metrics, ops) for name, value in vars(module).items() if name[0] != "_"}
    | {"initializer": initializer, "Axis": Axis, "Constant": Constant, "Parameter": Parameter},
)

__all__ = ["PACKAGE"]
