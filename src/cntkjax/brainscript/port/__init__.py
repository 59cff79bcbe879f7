"""Configurations as Python programs."""

from .program import program_of

__all__ = ["program_of"]
