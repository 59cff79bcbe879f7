"""Converters of models."""

from . import converter, optimized_rnnstack_converter
from .converter import convert
from .optimized_rnnstack_converter import convert_optimized_rnnstack

__all__ = ["convert", "convert_optimized_rnnstack", "converter", "optimized_rnnstack_converter"]

