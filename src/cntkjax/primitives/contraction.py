"""Sums of products with a factor that is spread, as attention makes them: computed as products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import jax.numpy as jnp

from ..engine.lower.values import Axes, Context, Value, merged
from ..engine.plan.padding import PaddedOperand
from ..engine.plan.parts import resolve
from ..engine.plan.rewrite import NODE_RULES, Rewrite
from ..graph.axis import BATCH
from ..graph.function import Function
from ..graph.shape import is_unknown
from ..graph.variable import Variable
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

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Of a reduction of each step by itself."""
        return padding_of_reduction(attrs, operands)

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """As a sum over steps does if one factor is 0 there."""
        reduces_steps = all(v.reduces_steps(axes_of(attrs)) for v in operands if v.has_steps)
        return reduces_steps and any(v.padding == 0 for v in operands)

    def lower_packed(self, ctx: Context, attrs: Attrs, *operands: Value) -> Value:
        """einsum. What is one value a sequence stays so where each sequence has a row of its own."""
        axes, rank = merged(operands), attrs["rank"]
        names = _STATIC[:rank]
        if not all(self._stays(ctx, v, axes) for v in operands):
            operands = tuple(ctx.to_axes(v, axes) for v in operands)
        leads = [_LEADING[2 - ctx.lead(axes):][-ctx.lead(v.axes):] if v.axes else "" for v in operands]
        arrays = [ctx.array(v) for v in operands]
        shapes = [(1,) * (rank - (x.ndim - len(n))) + x.shape[len(n):] for x, n in zip(arrays, leads, strict=True)]
        whole = [b if a == 1 else a for a, b in zip(*shapes, strict=True)]
        reduced = reduced_axes(attrs, rank)
        terms = []
        for i, lead in enumerate(leads):
            own = [k for k in range(rank) if shapes[i][k] != 1 or whole[k] == 1]
            arrays[i] = arrays[i].reshape(*arrays[i].shape[: len(lead)], *(whole[k] for k in own))
            terms.append(lead + "".join(names[k] for k in own))
        kept = [k for k in range(rank) if k not in reduced]
        made = max(leads, key=len) + "".join(names[k] for k in kept)
        wide = jnp.promote_types(arrays[0].dtype, jnp.float32)
        found = jnp.einsum(f"{terms[0]},{terms[1]}->{made}", *arrays, preferred_element_type=wide)
        if attrs["reductionKeepDimensions"]:
            found = jnp.expand_dims(found, [ctx.lead(axes) + k for k in reduced])
        return Value(found.astype(arrays[0].dtype), axes)

    @staticmethod
    def _stays(ctx: Context, v: Value, axes: Axes) -> bool:
        return len(v.axes) in (0, len(axes)) or ctx.layout(axes).simple


def reduced_axes(attrs: Attrs, rank: int) -> list[int]:
    """Which axes of the product are reduced, counted from the first."""
    return sorted(rank + a.static_axis_index() for a in axes_of(attrs))


def _contracted(node: Function) -> Rewrite | None:
    """A sum of products over axes that both factors have, where one of them lacks another axis."""
    attrs = node.node_attributes
    product = resolve(node.node_inputs[0])._owner
    if attrs["reductionOpName"] != "Sum" or product is None or product.op_name != "ElementTimes":
        return None
    a, b = product.node_inputs
    if any(v.is_sparse or is_unknown(v.shape) for v in (a, b)) or not all(x.is_static_axis for x in axes_of(attrs)):
        return None
    rank = max(len(a.shape), len(b.shape))
    sizes = list(zip(*((1,) * (rank - len(v.shape)) + v.shape for v in (a, b)), strict=True))
    reduced = reduced_axes(attrs, rank)
    spread = [sizes[k] for k in range(rank) if k not in reduced and 1 in sizes[k] and sizes[k] != (1, 1)]
    if not spread or not any(1 not in sizes[k] for k in reduced):
        return None
    if all(b_size == 1 for _, b_size in spread):  # the weight of a loop is the larger one
        a, b = b, a
    return Rewrite(CONTRACTION, [a, _unspread(b, a)], attrs | {"rank": rank})


def _unspread(factor: Variable, other: Variable) -> Variable:
    """A factor before it was spread over the steps that the other one has anyway."""
    node = resolve(factor)._owner
    if node is None or node.op_name != "ReconcileDynamicAxis" or factor.dynamic_axes != other.dynamic_axes:
        return factor
    return node.node_inputs[0] if node.node_inputs[0].dynamic_axes == (BATCH,) else factor


CONTRACTION = Contraction()
NODE_RULES["ReduceElements"] = _contracted
