"""Axes, in CNTK's place."""

from .graph.axis import Axis

__all__ = ["Axis"]
