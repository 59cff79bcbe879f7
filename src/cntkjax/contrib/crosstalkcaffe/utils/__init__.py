"""Configurations of the converter."""

from . import format, globalconf

__all__ = ["format", "globalconf"]
