"""Matrix products with CNTK's rules for which axes are contracted."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax.numpy as jnp

from ..engine.sparse import Sparse, dense
from ..graph.errors import ShapeError, explain
from ..graph.shape import INFERRED, Shape, merge_dimension
from ..graph.variable import Leaf, Variable
from .base import Attrs, Int, Primitive, Size, primitive


@primitive("Times", 31)
class Times(Primitive):
    """Product over the trailing axes of the left operand and the leading axes of the right one.

    Shapes: left [*map, *inner], right [*inner, *out] with `outputRank` axes in out -> [*map, *out].
    Source: CNTK 2.7.
    """

    attributes = {"outputRank": Size(1), "inferInputRankToMap": Int(-1)}
    takes_sparse = True
    weight = 1

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Shape:
        """[*map, *out]; fills inferred dimensions of a parameter on the right."""
        left, right = inputs
        out_rank, to_map = attrs["outputRank"], attrs.get("inferInputRankToMap", -1)
        inner = list(right.shape[: len(right.shape) - out_rank])
        if len(right.shape) < out_rank:
            raise self._error(inputs, f"the right operand needs at least outputRank = {out_rank} axes")
        if right.is_parameter and inner[:1] == [INFERRED] and to_map >= 0:
            # The first axis stands for as many axes of the left operand as are not mapped.
            inner = [INFERRED] * (len(left.shape) - to_map - len(inner) + 1) + inner[1:]
        if len(inner) > len(left.shape):
            raise self._error(inputs, f"the left operand needs at least the {len(inner)} axes that are contracted")
        at = len(left.shape) - len(inner)
        merged = [d for a, b in zip(left.shape[at:], inner, strict=True) if (d := merge_dimension(a, b)) is not None]
        if len(merged) < len(inner):
            raise self._error(
                inputs,
                f"the {len(inner)} leading dimensions of the right operand do not match "
                f"the trailing dimensions of the left one",
            )
        out = right.shape[len(right.shape) - out_rank :] if out_rank else ()
        if isinstance(right, Leaf) and right.has_inferred:
            right.infer_shape((*merged, *out))
        return (*left.shape[:at], *out)

    def _error(self, inputs: Sequence[Variable], what: str) -> ShapeError:
        return ShapeError(explain(
            f"{self.name}: {what}", {"left": inputs[0], "right": inputs[1]},
            "declare the input with the size that the weights have, or let the weights take it from the input "
            "(cntk.InferredDimension, or cntk.layers.Dense)",
        ))

    def lower(self, attrs: Attrs, left: Any, right: Any) -> Any:
        """tensordot; rows of the right operand gathered where the left one is sparse."""
        right = dense(right)
        inner = jnp.ndim(right) - attrs["outputRank"]
        if isinstance(left, Sparse):
            if inner == len(left.shape):
                return left.dot(right.reshape(prod(right.shape[:inner]), *right.shape[inner:]))
            left = left.todense()
        return jnp.tensordot(left, right, axes=inner)


@primitive("TransposeTimes", 32)
class TransposeTimes(Primitive):
    """Product with the transpose of the right operand: its axes behind `outputRank` leading ones are contracted.

    With a one-hot vector on either side it is a choice of elements, which is what makes cross entropy cheap.

    Shapes: left [*map, inner], right [*out, inner] -> [*map, *out].
    Source: CNTK 2.7 (times_transpose, the product inside cross entropy).
    """

    attributes = {"outputRank": Size(1)}
    takes_sparse = True
    weight = 1

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Shape:
        """[*map, *out]."""
        left, right = inputs
        rank = attrs["outputRank"]
        right_shape = right.shape if len(right.shape) > rank else (1,) * (rank + 1 - len(right.shape)) + right.shape
        inner = right_shape[rank:]
        at = len(left.shape) - len(inner)
        if at < 0 or any(merge_dimension(a, b) is None for a, b in zip(left.shape[at:], inner, strict=True)):
            raise ShapeError(explain(
                f"{self.name}: the trailing dimensions of the operands differ", {"left": left, "right": right}
            ))
        if isinstance(right, Leaf) and right.has_inferred:
            right.infer_shape((*right.shape[:rank], *left.shape[at:]))
        return (*left.shape[:at], *right_shape[:rank])

    def lower(self, attrs: Attrs, left: Any, right: Any) -> Any:
        """tensordot over the trailing axes; with a one-hot operand, a choice of elements."""
        rank = attrs["outputRank"]
        if isinstance(right, Sparse) and rank == 1 and len(right.shape) == 1:
            return right.pick(dense(left))[..., None]
        if isinstance(left, Sparse) and not isinstance(right, Sparse) and right.ndim <= rank and len(left.shape) == 1:
            return left.dot(right).reshape((1,) * rank)
        left, right = dense(left), dense(right)
        if rank == 1 and right.ndim == 1:
            return jnp.sum(left * right, -1, keepdims=True)
        if right.ndim <= rank:
            right = right.reshape((1,) * (rank + 1 - right.ndim) + right.shape)
        inner = right.ndim - rank
        axes = list(range(left.ndim - inner, left.ndim)), list(range(rank, right.ndim))
        return jnp.tensordot(left, right, axes=axes)
