"""Axes, in CNTK's place."""

from .graph.annotations import EXACT as _EXACT
from .graph.arguments import check_arguments as _check_arguments
from .graph.axis import Axis

__all__ = ["Axis"]

_EXACT.add(Axis)
_check_arguments(globals(), "cntkjax.graph.axis")
