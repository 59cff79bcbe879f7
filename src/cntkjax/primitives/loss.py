"""Losses and metrics that are not composed of other operations. Most compute one number for the whole minibatch.

Source: CNTK 2.7; several of its values are scaled such that dividing by the number of samples gives a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array
from ..engine.lower.values import Axes, Context, Traced
from ..graph.build import Spec, merged_axes
from ..graph.errors import ShapeError, explain
from ..graph.shape import Shape, broadcast, is_known
from ..graph.variable import Edge, Leaf, has_value, value_of
from .base import Attrs, Bool, Float, Primitive, Size, primitive
from .elementwise import ELEMENTWISE


def _check_shapes(op: str, inputs: Sequence[Edge], fit: bool) -> None:
    if not fit:
        operands = {f"[{i}]": v for i, v in enumerate(inputs)}
        raise ShapeError(explain(
            f"{op}: the shapes of the operands differ", operands, "give operands of one shape"
        ))


def _same_shape(op: str, inputs: Sequence[Edge]) -> None:
    _check_shapes(op, inputs, broadcast([v.shape for v in inputs]) is not None)


def _same_number(op: str, inputs: Sequence[Edge]) -> None:
    """Samples that are flattened are not broadcast."""
    _check_shapes(op, inputs, len({prod(v.shape) for v in inputs if is_known(v.shape)}) < 2)


class WholeMinibatch(Primitive):
    """A primitive that reduces all samples of a minibatch to one number.

    Its operands may have different sequence axes, if the sequences have equal lengths. Source: CNTK 2.7.
    """

    packed = True
    equal_lengths: ClassVar[Literal["fed", "computed"] | None] = "computed"

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        _same_shape(self.name, inputs[:2])
        return Spec((), axes=())

    @staticmethod
    def samples(ctx: Context, *values: Traced) -> tuple[list[Array], Array]:
        """The values as [cells, elements], and a mask of the cells that hold samples, [cells]."""
        axes = max((v.axes for v in values), key=len)
        lead = ctx.lead(axes)
        cells = ctx.mask(axes).shape if lead else ()
        rows = []
        for v in values:
            data = ctx.array(ctx.to_axes(v, axes) if v.axes else v)
            data = data.reshape(*(data.shape[:lead] if v.axes else (1,) * lead), -1)
            rows.append(jnp.broadcast_to(data, (*cells, data.shape[-1])).reshape(-1, data.shape[-1]))
        return rows, ctx.mask(axes).reshape(-1)


def _cosine(x: Array, y: Array) -> Array:
    """Cosine of the angle between vectors in the last axis; 0 where one of them is 0.

    Errors: ValueError for vectors of different sizes.
    """
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"vectors of {x.shape[-1]} and {y.shape[-1]} elements")
    product = jnp.sum(x * y, -1)
    squares = jnp.sum(x * x, -1) * jnp.sum(y * y, -1)
    zero = squares == 0
    return jnp.where(zero, 0, product * lax.rsqrt(jnp.where(zero, 1, squares))).astype(x.dtype)


@primitive("CosDistance", 53)
class CosDistance(Primitive):
    """The cosine of the angle between two samples.

    Shapes: [*shape] twice -> scalar.
    """

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """A scalar per sample."""
        _same_shape(self.name, inputs)
        _same_number(self.name, inputs)
        return ()

    def lower(self, attrs: Attrs, x: Array, y: Array) -> Array:
        """The cosine of flattened samples."""
        return _cosine(x.reshape(-1), y.reshape(-1))


@primitive("CosDistanceWithNegativeSamples", 67)
class CosDistanceWithNegativeSamples(Primitive):
    """The cosine with the sample at the same position, and with those at other positions (negative samples).

    Operands: x, y, the shift to the first negative sample, their number n. The first steps of all sequences come before
    the second ones, and positions wrap around: CNTK's order, if all sequences are of one length.
    Shapes: [*shape] twice -> [1 + n].
    """

    packed = True
    mixes_samples = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """[1 + n]; n has to be a constant."""
        _same_number(self.name, inputs[:2])
        number = inputs[3]
        if not isinstance(number, Leaf) or not has_value(number):
            raise ShapeError(explain(
                f"{self.name}: the number of negative samples has to be a constant", {"n": number},
                "give a number, or cntk.constant",
            ))
        negatives = value_of(number)
        if negatives < 0:
            raise ValueError(f"{self.name}: the number of negative samples is {int(negatives)}; give one from 0 on")
        return Spec((int(negatives) + 1,), axes=merged_axes(self.name, inputs[:2]))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, y: Traced, shift: Traced, n: Traced) -> Traced:
        """Cosines with shifted samples, without padding."""
        assert ctx.node is not None
        (xs, ys), mask = WholeMinibatch.samples(ctx, x, y)
        axes = max(x.axes, y.axes, key=len)
        cells = jnp.arange(len(mask))
        if ctx.sequence_axis(axes) is not None:
            layout = ctx.layout(axes)
            cells = (layout.position * layout.size + layout.seq).reshape(-1)
        order = jnp.argsort(jnp.where(mask, cells, jnp.iinfo(cells.dtype).max))  # samples first, then padding
        position = jnp.zeros_like(order).at[order].set(jnp.arange(len(order), dtype=order.dtype))
        first = position + ctx.array(shift).astype(position.dtype)
        count = jnp.maximum(jnp.sum(mask), 1)
        others = [ys[order[(first + k) % count]] for k in range(ctx.node.node_outputs[0].shape[0] - 1)]
        cosines = jnp.stack([_cosine(xs, other) for other in (ys, *others)], -1)
        return Traced(cosines.reshape(*ctx.mask(axes).shape, -1), axes)


@primitive("Logistic", 48)
class Logistic(WholeMinibatch):
    """Weighted cross entropy of probabilities p and labels y: the sum of -w log(yp + (1 - y)(1 - p)), over mean(w).

    The gradient is that of the sum alone.
    """

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        _same_shape(self.name, inputs)
        _same_number(self.name, [*inputs[:2], *(w for w in inputs[2:] if prod(w.shape) != 1)])
        return super().outputs(inputs, attrs)

    def lower_packed(self, ctx: Context, attrs: Attrs, p: Traced, label: Traced, *weight: Traced) -> Traced:
        """The sum, scaled."""
        (probability, target, *w), mask = self.samples(ctx, p, label, *weight)
        likelihood = target * probability + (1 - target) * (1 - probability)
        loss = -ELEMENTWISE["Log"].lower({}, likelihood)
        if not w:
            return Traced(jnp.sum(jnp.where(mask[:, None], loss, 0)), ())
        weights = jnp.where(mask[:, None], jnp.broadcast_to(w[0], loss.shape), 0)
        total = jnp.sum(jnp.where(mask[:, None], loss, 0) * weights)
        scaled = total * (jnp.sum(mask) * loss.shape[-1] / jnp.sum(weights)).astype(total.dtype)
        return Traced(total + lax.stop_gradient(scaled - total), ())


@primitive("ClassificationError", 36)
class ClassificationError(WholeMinibatch):
    """The number of samples whose label is not among the n largest outputs; of equal outputs the first ranks higher.

    Operands: output, label (one-hot, otherwise the largest element is the label), n.
    """

    def lower_packed(self, ctx: Context, attrs: Attrs, output: Traced, label: Traced, *n: Traced) -> Traced:
        """Compare the ranks of the labels with n."""
        (x, one_hot), mask = self.samples(ctx, output, label)
        target = jnp.argmax(one_hot, -1)[:, None]
        score = jnp.take_along_axis(x, target, -1)
        is_before = jnp.arange(x.shape[-1]) < target
        rank = jnp.sum((x > score) | ((x == score) & is_before), -1)
        best = ctx.array(n[0]).astype(rank.dtype) if n else 1
        wrong = (rank >= best) | (target[:, 0] >= x.shape[-1])  # a class that has no output
        return Traced(jnp.sum(mask & wrong).astype(x.dtype), ())


# ---- ranking
def _ranks(score: Array, group: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Which items share a group, [n, n]; their ranks by score, [n], and in the order of the data, [n], from 1."""
    same = (group[:, None] == group[None, :]) & mask[:, None] & mask[None, :]
    position = jnp.arange(len(score))
    earlier = position[None, :] < position[:, None]
    above = (score[None, :] > score[:, None]) | ((score[None, :] == score[:, None]) & earlier)
    return same, 1 + jnp.sum(same & above, 1), 1 + jnp.sum(same & earlier, 1)


def _runs(group: Array, mask: Array) -> Array:
    """The number of each item's group: neighbors with equal ids, which are truncated to integers.

    An id that comes again later is another group.
    """
    group = jnp.trunc(group)
    latest = jax.lax.cummax(jnp.where(mask, jnp.arange(len(group)), -1))
    previous = jnp.concatenate([jnp.full(1, -1), latest[:-1]])
    return jnp.cumsum(mask & ((previous < 0) | (group != group[previous])))


def _discounted(gain: Array, rank: Array) -> Array:
    return gain / jnp.log(1.0 + rank).astype(gain.dtype)


class Ranking(WholeMinibatch):
    """A measure of ranking within groups (queries), which are neighbors in the minibatch, with decreasing gains."""

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        merged_axes(self.name, inputs)
        if any(prod(v.shape) != 1 for v in inputs):
            names = ("score", "gain", "group")
            raise ShapeError(explain(
                f"{self.name}: a sample has one score, one gain and one group", dict(zip(names, inputs, strict=True)),
                "give operands with one element",
            ))
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, output: Traced, gain: Traced, group: Traced) -> Traced:
        """The measure of all samples."""
        (score, *columns), mask = self.samples(ctx, output, gain, group)
        item_score, item_gain, ids = (column[:, 0] for column in (score, *columns))
        return Traced(self.measure(item_score, item_gain, _runs(ids, mask), mask), ())

    def measure(self, score: Array, gain: Array, group: Array, mask: Array) -> Array:
        """The measure of all items: [n] each -> a number."""
        raise NotImplementedError

    @staticmethod
    def averaged(per_item: Array, first: Array, mask: Array) -> Array:
        """100 n times the mean over groups of the values at their first items."""
        groups = jnp.maximum(jnp.sum(first), 1)
        return (100 * jnp.sum(mask) / groups * jnp.sum(jnp.where(first, per_item, 0))).astype(per_item.dtype)


@jax.custom_jvp
def _lambda_rank(score: Array, gain: Array, group: Array, mask: Array) -> Array:
    same, rank, ideal_rank = _ranks(score, group, mask)
    gained = jnp.sum(jnp.where(same, _discounted(gain, rank)[None, :], 0), 1)
    ideal = jnp.sum(jnp.where(same, _discounted(gain, ideal_rank)[None, :], 0), 1)
    lost = 1 - jnp.where(ideal > 0, gained / jnp.where(ideal > 0, ideal, 1), 0)
    return Ranking.averaged(lost, mask & (ideal_rank == 1), mask)


@_lambda_rank.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    score, gain, group, mask = primals
    same, rank, ideal_rank = _ranks(score, group, mask)
    ideal = jnp.sum(jnp.where(same, _discounted(gain, ideal_rank)[None, :], 0), 1)
    discount = _discounted(jnp.ones_like(gain), rank)
    change = jnp.abs((gain[:, None] - gain[None, :]) * (discount[:, None] - discount[None, :]))
    change = change / jnp.where(ideal > 0, ideal, 1)[:, None]
    # Items of a group are ordered from the best to the worst: CNTK ignores pairs in the opposite order.
    better = same & (ideal_rank[:, None] < ideal_rank[None, :]) & (gain[:, None] > gain[None, :])
    pull = jnp.where(better, change * jax.nn.sigmoid(score[None, :] - score[:, None]), 0)
    force = jnp.sum(pull, 0) - jnp.sum(pull, 1)
    return _lambda_rank(*primals), jnp.sum(force * tangents[0])


@primitive("LambdaRank", 59)
class LambdaRank(Ranking):
    """100 n (1 - NDCG), with discounts log(1 + rank); its gradient is that of LambdaRank.

    Source: Burges, "From RankNet to LambdaRank to LambdaMART" (MSR-TR-2010-82), section 4; values from CNTK 2.7.
    """

    def measure(self, score: Array, gain: Array, group: Array, mask: Array) -> Array:
        """The loss."""
        return _lambda_rank(score, gain, group, mask)


@primitive("NDCG", 60)
class NDCG(Ranking):
    """100 n times the gain of the item with the highest score over that of the group's first item."""

    def measure(self, score: Array, gain: Array, group: Array, mask: Array) -> Array:
        """The measure."""
        same, rank, ideal_rank = _ranks(score, group, mask)
        top = jnp.sum(jnp.where(same & (rank == 1)[None, :], gain[None, :], 0), 1)
        best = jnp.sum(jnp.where(same & (ideal_rank == 1)[None, :], gain[None, :], 0), 1)
        return self.averaged(jnp.where(best > 0, top / jnp.where(best > 0, best, 1), 0), mask & (ideal_rank == 1), mask)


# ---- edit distance
@primitive("EditDistanceError", 61)
class EditDistanceError(WholeMinibatch):
    """The number of edits on the cheapest path from one sequence of tokens to the other, per token.

    The token of a sample is the index of its largest element. `SquashInputs` merges repeated tokens, `TokensToIgnore`
    are removed. The number of edits is multiplied by samples / remaining tokens of the second operand.
    """

    attributes = {
        "SubstitutionPenalty": Float(1.0), "DeletionPenalty": Float(1.0), "InsertionPenalty": Float(1.0),
        "SquashInputs": Bool(False), "TokensToIgnore": Size([]).vector,
    }
    equal_lengths = None

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes; the operands may have different sequence axes, and then differ in length."""
        _same_shape(self.name, inputs)
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, a: Traced, b: Traced) -> Traced:
        """Dynamic programming on all sequences at once."""
        (first, first_lengths), (second, lengths) = (self._tokens(ctx, v, max(a.axes, b.axes, key=len)) for v in (a, b))
        (left, m), (right, n) = self._filtered(first, first_lengths, attrs), self._filtered(second, lengths, attrs)
        edits = jnp.sum(jnp.where(first_lengths + lengths > 0, self._edits(left, m, right, n, attrs), 0))
        return Traced((edits * (jnp.sum(lengths) / jnp.sum(n))).astype(ctx.array(a).dtype), ())

    @staticmethod
    def _tokens(ctx: Context, value: Traced, axes: Axes) -> tuple[Array, Array]:
        """The tokens [sequences, time] and the lengths of a value, broadcast over `axes` if it is no sequence."""
        if ctx.sequence_axis(value.axes) is None:
            value = ctx.to_axes(value, axes) if value.axes else Traced(
                jnp.broadcast_to(ctx.array(value), (*ctx.mask(axes).shape, *value.data.shape)), axes
            )
        data, lead = ctx.array(value), ctx.lead(value.axes)
        tokens = jnp.argmax(data.reshape(*data.shape[:lead], -1), -1)
        if lead < 2:
            return tokens.reshape(-1, 1), ctx.mask(value.axes).reshape(-1).astype(jnp.int32)
        layout = ctx.layout(value.axes)
        return layout.at(tokens, jnp.arange(layout.time)[:, None]).T, layout.length

    @staticmethod
    def _filtered(tokens: Array, lengths: Array, attrs: Attrs) -> tuple[Array, Array]:
        """The tokens without merged and ignored ones, moved to the front of each sequence, and their numbers."""
        if not attrs["SquashInputs"] and not attrs["TokensToIgnore"]:
            return tokens, lengths
        keep = jnp.arange(tokens.shape[1]) < lengths[:, None]
        if attrs["SquashInputs"]:
            keep &= jnp.concatenate([jnp.ones_like(keep[:, :1]), tokens[:, 1:] != tokens[:, :-1]], 1)
        for token in attrs["TokensToIgnore"]:
            keep &= tokens != token
        order = jnp.argsort(~keep, axis=1, stable=True)
        return jnp.take_along_axis(tokens, order, 1), jnp.sum(keep, 1)

    @staticmethod
    def _edits(left: Array, m: Array, right: Array, n: Array, attrs: Attrs) -> Array:
        """The numbers of edits, [sequences], by dynamic programming on pairs (cost, number of edits)."""
        substitute, delete, insert = (attrs[k + "Penalty"] for k in ("Substitution", "Deletion", "Insertion"))
        if substitute == delete == insert > 0:
            return _fewest_edits(left, m, right, n)
        columns = jnp.arange(right.shape[1] + 1)
        start = tuple(jnp.broadcast_to(c, (len(left), len(columns))) for c in (columns * insert, columns))

        def row(above: Any, now: tuple[Array, Array]) -> Any:
            token, i = now
            differs = token[:, None] != right
            deleted = above[0][:, 1:] + delete, above[1][:, 1:] + 1
            changed = above[0][:, :-1] + jnp.where(differs, substitute, 0.0), above[1][:, :-1] + differs
            substitutes = changed[0] <= deleted[0]
            best: Any = *(jnp.where(substitutes, c, d) for c, d in zip(changed, deleted, strict=True)), substitutes
            first = [jnp.full((len(left), 1), c) for c in (i * delete, i, False)]
            best = tuple(jnp.concatenate(pair, 1) for pair in zip(first, best, strict=True))
            # Insertions come from the left: the minimum over all columns to the left of their cost and the insertions.
            level = (best[0] - columns * insert, best[1] - columns, best[2])
            least = lax.associative_scan(_cheaper, level, axis=1)
            costs = (least[0] + columns * insert, least[1] + columns)
            return costs, costs[1]

        steps = jnp.arange(1, left.shape[1] + 1)
        _, rows = lax.scan(row, (start[0] * 1.0, start[1]), (left.T, steps))
        table = jnp.concatenate([start[1][None], rows])
        return table[m, jnp.arange(len(left)), n]


def _fewest_edits(left: Array, m: Array, right: Array, n: Array) -> Array:
    """The numbers of edits if all cost the same, [sequences]: the cheapest path is the one with the fewest."""
    columns = jnp.arange(right.shape[1] + 1)
    start = jnp.broadcast_to(columns, (len(left), len(columns)))

    def row(above: Any, now: tuple[Array, Array]) -> Any:
        token, i = now
        best = jnp.minimum(above[:, 1:] + 1, above[:, :-1] + (token[:, None] != right))
        best = jnp.concatenate([jnp.full((len(left), 1), i), best], 1)
        counts = lax.cummin(best - columns, axis=1) + columns
        return counts, counts

    _, rows = lax.scan(row, start, (left.T, jnp.arange(1, left.shape[1] + 1)))
    return jnp.concatenate([start[None], rows])[m, jnp.arange(len(left)), n]


def _cheaper(left: tuple[Any, Any, Any], right: tuple[Any, Any, Any]) -> tuple[Array, ...]:
    """The cheaper path. If both cost the same, CNTK prefers substitutions, then insertions, then deletions."""
    first = (left[0] < right[0]) | ((left[0] == right[0]) & ~right[2])
    return tuple(jnp.where(first, a, b) for a, b in zip(left, right, strict=True))
