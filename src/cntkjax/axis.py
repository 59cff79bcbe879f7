"""Axes, in CNTK's place."""

from .graph.annotations import EXACT as _EXACT
from .graph.arguments import public as _public
from .graph.axis import Axis

__all__ = ["Axis"]

_EXACT.add(Axis)
_public(Axis)
