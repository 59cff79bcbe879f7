"""Sums of products with a factor that is broadcast, as in attention: computed as matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters

import jax.numpy as jnp

from .._typing import Array
from ..engine.lower.values import Axes, Context, Traced, common_axes
from ..engine.plan.padding import PaddedOperand
from ..graph.shape import Shape, facing
from .base import Attrs, Primitive
from .reduce import axes_of, padding_of_reduction

_LEADING, _STATIC = "tr", ascii_letters.replace("t", "").replace("r", "")


class Contraction(Primitive):
    """sum(a * b) over static axes, without the array of all products.

    Attributes: those of the reduction, and `rank`, that of the product.
    Shapes: a and b broadcast to [*shape] -> [*shape] without the reduced axes, or with 1 in their places.
    """

    name = "Contraction"
    packed = True
    weight_operand = 1
    weight_per_sequence = True

    def facing_sizes(self, attrs: Attrs, shapes: Sequence[Shape]) -> Iterable[Sequence[int]]:
        """As of the element-wise product."""
        return facing(shapes)

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Of a reduction of each step by itself."""
        return padding_of_reduction(attrs, operands)

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """As a sum over steps does if one factor is 0 there."""
        reduces_steps = all(v.reduces_steps(axes_of(attrs)) for v in operands if v.has_steps)
        return reduces_steps and any(v.padding == 0 for v in operands)

    def lower_packed(self, ctx: Context, attrs: Attrs, *operands: Traced) -> Traced:
        """einsum. What is one value a sequence stays so where each sequence has a row of its own."""
        axes, rank = common_axes(operands), attrs["rank"]
        if not all(_stays_as_is(ctx, v, axes) for v in operands):
            operands = tuple(ctx.to_axes(v, axes) for v in operands)
        reduced = reduced_axes(attrs, rank)
        leads = [_LEADING[2 - ctx.lead(axes):][-ctx.lead(v.axes):] if v.axes else "" for v in operands]
        terms, arrays = _einsum_terms([ctx.array(v) for v in operands], leads, rank)
        output = max(leads, key=len) + "".join(_STATIC[k] for k in range(rank) if k not in reduced)
        wide = jnp.promote_types(arrays[0].dtype, jnp.float32)
        total = jnp.einsum(f"{','.join(terms)}->{output}", *arrays, preferred_element_type=wide)
        if attrs["reductionKeepDimensions"]:
            total = jnp.expand_dims(total, [ctx.lead(axes) + k for k in reduced])
        return Traced(total.astype(arrays[0].dtype), axes)


def _stays_as_is(ctx: Context, v: Traced, axes: Axes) -> bool:
    """True if a value need not be spread over the steps."""
    return len(v.axes) in (0, len(axes)) or ctx.layout(axes).simple


def _einsum_terms(arrays: Sequence[Array], leads: Sequence[str], rank: int) -> tuple[list[str], list[Array]]:
    """The subscripts of two factors, and the factors without the axes that are spread from size 1."""
    shapes = [(1,) * (rank - (x.ndim - len(n))) + x.shape[len(n):] for x, n in zip(arrays, leads, strict=True)]
    sizes = [b if a == 1 else a for a, b in zip(*shapes, strict=True)]
    terms, reshaped = [], []
    for x, lead, shape in zip(arrays, leads, shapes, strict=True):
        kept = [k for k in range(rank) if shape[k] != 1 or sizes[k] == 1]
        terms.append(lead + "".join(_STATIC[k] for k in kept))
        reshaped.append(x.reshape(*x.shape[: len(lead)], *(sizes[k] for k in kept)))
    return terms, reshaped


def reduced_axes(attrs: Attrs, rank: int) -> list[int]:
    """Which axes of the product are reduced, counted from the first."""
    return sorted(rank + a.static_axis_index() for a in axes_of(attrs))


CONTRACTION = Contraction()
