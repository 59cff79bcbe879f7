"""Matrix products with CNTK's rules for which axes are contracted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array
from ..engine.data.dimensions import expand_to
from ..engine.data.sparse import Sparse, dense
from ..engine.lower.values import Context, Traced, common_axes
from ..engine.native.program import Operation
from ..engine.plan.padding import ANYTHING, IN_NONE, PaddedOperand
from ..engine.plan.parts import resolve
from ..graph.axis import BATCH
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, INFERRED, Shape, merge_dimension
from ..graph.variable import Edge, Leaf, infer_shape
from .base import Attrs, Int, Primitive, Size, primitive

REDUCE_SEQUENCE = -2  # as inferInputRankToMap: the products of all steps are summed


# Beyond one row of so many weights, or so many multiplications, OpenBLAS uses several threads. Where other programs
# keep the machine busy, these wait for each other, and a product of eight rows takes 50 ms instead of 0.3.
_MOST_WEIGHTS, _MOST_MULTIPLICATIONS = 1 << 19, 1 << 18
# Larger products are sums of smaller ones, which take less time than XLA if these are not too small.
_LEAST_PART, _MOST_ROWS_IN_PARTS = 24, 16


def _part_of_weight(rows: int, inner: int, outer: int) -> int:
    """How many rows of a weight [inner, outer] one thread of OpenBLAS multiplies at once by so many samples.

    0 if XLA takes less time for the product.
    """
    part = (_MOST_WEIGHTS if rows == 1 else _MOST_MULTIPLICATIONS) // (rows * outer)
    if part >= inner:
        return inner
    is_small = inner * outer <= _MOST_WEIGHTS * (8 if rows == 1 else 2)
    return part if part >= _LEAST_PART and rows <= _MOST_ROWS_IN_PARTS and is_small else 0


def _product_in_parts(part: int, samples: AnyArray, weight: AnyArray) -> AnyArray:
    """The product of samples [rows, inner] and a weight [inner, outer], so many rows of the weight at once."""
    result = np.dot(samples[:, :part], weight[:part])
    for i in range(part, len(weight), part):
        result += np.dot(samples[:, i : i + part], weight[i : i + part])
    return result


@primitive("Times", 31)
class Times(Primitive):
    """Product over the trailing axes of the left operand and the leading axes of the right one.

    Shapes: left [*map, *inner], right [*inner, *out] with `outputRank` axes in out -> [*map, *out].
    Source: CNTK 2.7.
    """

    attributes = {"outputRank": Size(1), "inferInputRankToMap": Int(-1)}
    takes_sparse = True
    weight_operand = 1
    autocasts = True

    def specialize(self, attrs: Attrs) -> Primitive:
        """With the attribute that says so, the products of all steps of a sequence are summed."""
        return _over_sequence if attrs.get("inferInputRankToMap") == REDUCE_SEQUENCE else self

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """Of samples, all of whose axes are contracted, and a weight."""
        left, right = node.node_inputs
        rank = node.node_attributes["outputRank"]
        if not left.dynamic_axes or right.dynamic_axes or left.shape != right.shape[:-rank]:
            return None
        inner, shape = prod(left.shape), right.shape[-rank:]
        part = _part_of_weight(rows, inner, prod(shape))
        product = np.dot if part == inner else partial(_product_in_parts, part)

        def multiply(samples: AnyArray, weight: AnyArray) -> AnyArray:
            return product(samples.reshape(-1, inner), weight.reshape(inner, -1)).reshape(len(samples), *shape)

        return None if not part else product if len(left.shape) == rank == 1 else multiply

    def by_steps(self, node: Node) -> Operation | None:
        """Of samples, all of whose axes are contracted, and a weight."""
        left, right = node.node_inputs
        inner = right.shape[: -node.node_attributes["outputRank"]]
        if not left.dynamic_axes or right.dynamic_axes or left.shape != inner:
            return None
        key, shape = resolve(right), left.shape
        return Operation(lambda writer, x, w: writer.product(key, x, w.reshape(*shape, -1)), of_steps=True)

    def gathers_rows(self, node: Node) -> bool:
        """True if one axis is contracted."""
        return len(node.node_inputs[1].shape) == node.node_attributes["outputRank"] + 1

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape | Spec:
        """[*map, *out]; fills inferred dimensions of a parameter on the right."""
        left, right = inputs
        inner = self._inner_dimensions(inputs, attrs)
        first = len(left.shape) - len(inner)
        common = self._common_dimensions(inputs, left.shape[first:], inner)
        out = right.shape[len(right.shape) - attrs["outputRank"] :]
        if right.is_parameter and INFERRED in out:
            raise self._error(inputs, "no operand tells the sizes of the weights' last axes", "give their sizes")
        if isinstance(right, Leaf) and right.has_inferred:
            infer_shape(right, (*common, *out))
        return (*left.shape[:first], *out)

    def _inner_dimensions(self, inputs: Sequence[Edge], attrs: Attrs) -> list[int]:
        """The dimensions of the right operand that are contracted."""
        left, right = inputs
        out_rank, to_map = attrs["outputRank"], attrs.get("inferInputRankToMap", -1)
        if out_rank < 1:
            raise self._error(inputs, f"the output rank is {out_rank}", "give the number of axes of the right operand "
                              "that the product keeps, 1 or more")
        if len(right.shape) < out_rank:
            raise self._error(inputs, f"the right operand needs at least outputRank = {out_rank} axes")
        if to_map > 0 and to_map >= len(left.shape):
            raise self._error(inputs, f"{to_map} axes of the left operand are mapped: none is left to contract")
        inner = list(right.shape[: len(right.shape) - out_rank])
        if right.is_parameter and inner[:1] == [INFERRED] and to_map >= 0:
            # The first axis is expanded to as many axes as the left operand has beyond the mapped ones.
            inner = [INFERRED] * (len(left.shape) - to_map - len(inner) + 1) + inner[1:]
        if len(inner) > len(left.shape):
            raise self._error(inputs, f"the left operand needs at least the {len(inner)} axes that are contracted")
        if left.is_sparse and len(inner) > 1:
            raise self._error(
                inputs, f"{len(inner)} axes of a sparse left operand cannot be contracted, only its last one",
                "give the samples one axis (cntk.reshape, or an input of that shape)",
            )
        return inner

    def _common_dimensions(self, inputs: Sequence[Edge], left: Sequence[int], right: Sequence[int]) -> list[int]:
        """The sizes of the contracted axes, known if either operand's is."""
        common = []
        for axis, (a, b) in enumerate(zip(left, right, strict=True)):
            dimension = merge_dimension(a, b)
            if dimension is None:
                raise self._error(
                    inputs,
                    f"inner dimensions differ: {a} (left axis {axis - len(right)}) against {b} (right axis {axis})",
                    f"pass an operand whose size is {b} there; or let the weights take their size from the input "
                    "(cntk.InferredDimension), and create one layer for each input size: a layer keeps the size of the "
                    "input that it is applied to first",
                )
            common.append(dimension)
        return common

    def _error(self, inputs: Sequence[Edge], what: str, fix: str = "") -> ShapeError:
        return ShapeError(explain(
            f"{self.name}: {what}", {"left": inputs[0], "right": inputs[1]},
            fix or "declare the input with the size that the weights have, or let the weights take it from the input "
            "(cntk.InferredDimension, or cntk.layers.Dense)",
        ))

    def facing_sizes(self, attrs: Attrs, shapes: Sequence[Shape]) -> Iterable[Sequence[int]]:
        """The contracted axes."""
        left, right = shapes
        inner = len(right) - attrs["outputRank"]
        return list(zip(left[len(left) - inner :], right[:inner], strict=True))

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """The axes of the left operand that are mapped come before those of the right one that are kept."""
        (left, right), rank = shapes, attrs["outputRank"]
        if FREE in right[len(right) - rank :]:
            return right.index(FREE) - len(right)
        mapped = left[: len(left) - len(right) + rank]
        return mapped.index(FREE) - len(mapped) - rank if FREE in mapped else IN_NONE

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Of products of each step of one operand with the other."""
        return _padding_of_products(operands)

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """As a sum over steps does if one factor is 0 there."""
        return _is_0_in_padding(operands)

    def lower(self, attrs: Attrs, left: Array | Sparse, right: Array | Sparse) -> Array:
        """tensordot; a gather of rows of the right operand where the left one is sparse."""
        weight = dense(right)
        inner = jnp.ndim(weight) - attrs["outputRank"]
        if isinstance(left, Sparse) and inner == len(left.shape):
            return left.dot(weight.reshape(prod(weight.shape[:inner]), *weight.shape[inner:]))
        return _flat_product(dense(left), weight, inner)


def _flat_product(left: Array, weight: Array, inner: int) -> Array:
    """tensordot over `inner` axes, as a product of matrices.

    XLA moves the transpose of a weight's gradient into the product that it comes from only if no reshape is between.
    """
    kept, rows = left.shape[: left.ndim - inner], prod(weight.shape[:inner])
    product = jnp.tensordot(left.reshape(*kept, rows), weight.reshape(rows, -1), axes=1)
    return product.reshape(*kept, *weight.shape[inner:])


def _padding_of_products(operands: Sequence[PaddedOperand]) -> float | None:
    """The value of products of each step of one operand with another, which has no steps."""
    steps = [v for v in operands if v.has_steps]
    return None if len(steps) > 1 else 0.0 if steps[0].padding == 0 else ANYTHING


def _is_0_in_padding(operands: Sequence[PaddedOperand]) -> bool:
    """True if a factor is 0 in the padding of its steps."""
    return any(v.padding == 0 for v in operands)


class _TimesOverSequence(type(Times)):  # type: ignore[misc]
    """The sum of the products over the steps of a sequence: the sequence axis is contracted too.

    Shapes: left [*map, *inner], right [*inner, *out], one or both sequences -> [*map, *out] for each sequence.
    """

    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[*map, *out] with the batch axis alone."""
        shape = super().outputs(inputs, attrs)
        merged_axes(self.name, inputs)
        if not any(v.sequence_axis is not None for v in inputs):
            raise AxisError(explain(
                f"{self.name}: there is no sequence axis to reduce", {"left": inputs[0], "right": inputs[1]},
                "declare an operand with cntk.sequence.input_variable",
            ))
        return Spec(shape, axes=(BATCH,))

    def lower_packed(self, ctx: Context, attrs: Attrs, left: Traced, right: Traced) -> Traced:
        """One product for each sequence, over its steps and the inner axes at once."""
        axes = common_axes([left, right])
        layout = ctx.layout(axes)
        steps = jnp.arange(layout.time)[:, None]
        present = steps < layout.length
        factors = []
        for v in (left, right):
            data = ctx.array(ctx.to_axes(v, axes)) if v.axes else jnp.broadcast_to(
                ctx.array(v), (layout.time, layout.rows, *jnp.shape(v.data))
            )
            data = data if layout.simple else layout.at(data, steps)
            factors.append(jnp.where(expand_to(present, data.ndim), data, 0))
        inner = factors[1].ndim - 2 - attrs["outputRank"]
        contracted = [0, *range(factors[0].ndim - 1 - inner, factors[0].ndim - 1)], list(range(inner + 1))
        product = jax.vmap(lambda a, b: jnp.tensordot(a, b, axes=contracted), in_axes=1)(*factors)
        return Traced(product, (BATCH,))


_over_sequence = _TimesOverSequence()


@primitive("TransposeTimes", 32)
class TransposeTimes(Primitive):
    """Product with the transpose of the right operand: its axes after the `outputRank` leading ones are contracted.

    With a one-hot vector on either side it selects elements, which makes cross entropy cheap.

    Shapes: left [*map, inner], right [*out, inner] with at most one inner axis -> [*map, *out].
    Source: CNTK 2.7 (times_transpose, the product inside cross entropy).
    """

    attributes = {"outputRank": Size(1)}
    takes_sparse = True
    weight_operand = 1
    autocasts = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """[*map, *out]."""
        left, right = inputs
        rank = attrs["outputRank"]
        if len(right.shape) > rank + 1:
            raise ShapeError(explain(
                f"{self.name}: the right operand has rank {len(right.shape)}, but at most {rank + 1} is possible",
                {"left": left, "right": right}, "transpose it and use times, which has infer_input_rank_to_map",
            ))
        right_shape = right.shape if len(right.shape) > rank else (1,) * (rank + 1 - len(right.shape)) + right.shape
        inner = right_shape[rank:]
        at = len(left.shape) - len(inner)
        if at < 0 or any(merge_dimension(a, b) is None for a, b in zip(left.shape[at:], inner, strict=True)):
            raise ShapeError(explain(
                f"{self.name}: the trailing dimensions of the operands differ", {"left": left, "right": right},
                "give both operands the same trailing dimensions; the right one may have more axes before them",
            ))
        if isinstance(right, Leaf) and right.has_inferred:
            infer_shape(right, (*right.shape[:rank], *left.shape[at:]))
        return (*left.shape[:at], *right_shape[:rank])

    def facing_sizes(self, attrs: Attrs, shapes: Sequence[Shape]) -> Iterable[Sequence[int]]:
        """The contracted axes."""
        left, right = shapes
        return [(left[-1], right[-1])]

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """The axes of the left operand before its last one come before those of the right one."""
        left, right = shapes
        if FREE in right[:-1]:
            return right.index(FREE) - len(right) + 1
        return left.index(FREE) - len(left) + 1 - attrs["outputRank"] if FREE in left[:-1] else IN_NONE

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """Of products of each step of one operand with the other."""
        return _padding_of_products(operands)

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """As a sum over steps does if one factor is 0 there."""
        return _is_0_in_padding(operands)

    def lower(self, attrs: Attrs, left: Array | Sparse, right: Array | Sparse) -> Array:
        """tensordot over the trailing axes; a selection of elements where an operand is one-hot."""
        rank = attrs["outputRank"]
        if isinstance(right, Sparse) and rank == 1 and len(right.shape) == 1:
            return right.pick(dense(left))[..., None]
        if isinstance(left, Sparse) and not isinstance(right, Sparse) and right.ndim <= rank and len(left.shape) == 1:
            return left.dot(right).reshape((1,) * rank)
        x, weight = dense(left), dense(right)
        if x.ndim == weight.ndim == rank == 1:  # a sum takes half the time of a product with one row and one column
            return jnp.sum(x * weight, -1, keepdims=True)
        if weight.ndim <= rank:
            weight = weight.reshape((1,) * (rank + 1 - weight.ndim) + weight.shape)
        inner = weight.ndim - rank
        axes = list(range(x.ndim - inner, x.ndim)), list(range(rank, weight.ndim))
        return jnp.tensordot(x, weight, axes=axes)
