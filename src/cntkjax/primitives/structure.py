"""Operations that group the outputs of graphs, and compute nothing themselves."""

from __future__ import annotations

from .base import Primitive, primitive


@primitive("Combine", 44)
class Combine(Primitive):
    """Several outputs as those of one function. Its outputs are the operands themselves."""

    passes_through = True
