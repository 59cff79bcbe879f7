"""All primitive operations; importing this package registers them."""

from . import (
    contraction,
    convolution,
    crop,
    ctc,
    delay,
    elementwise,
    fill,
    gradient,
    lattice,
    legacy,
    loss,
    native,
    normalization,
    pooling,
    product,
    random,
    reduce,
    reshape,
    rewrites,
    rnnstack,
    select,
    sequence,
    structure,
)
from .base import BY_ID, BY_NAME, Primitive

__all__ = [
    "BY_ID", "BY_NAME", "Primitive", "contraction", "convolution", "crop", "ctc", "delay", "elementwise", "fill",
    "gradient", "lattice", "legacy", "loss", "native", "normalization", "pooling", "product", "random", "reduce",
    "reshape", "rewrites", "rnnstack", "select", "sequence", "structure",
]
