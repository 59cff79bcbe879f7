"""Losses and metrics that are not composed of other operations. Most give one number for the whole minibatch.

Source: CNTK 2.7; several of its values are scaled so that dividing by the number of samples gives a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..engine.lower.values import Axes, Context, Value
from ..graph.build import Spec, merged_axes
from ..graph.errors import ShapeError, explain
from ..graph.shape import broadcast
from ..graph.variable import Variable
from .base import Attrs, Bool, Float, Primitive, Size, primitive
from .elementwise import ELEMENTWISE


def _same_shape(op: str, inputs: Sequence[Variable]) -> None:
    if broadcast([v.shape for v in inputs]) is None:
        operands = {f"[{i}]": v for i, v in enumerate(inputs)}
        raise ShapeError(explain(f"{op}: the shapes of the operands differ", operands))


class WholeMinibatch(Primitive):
    """A primitive that makes one number of all samples together."""

    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        merged_axes(self.name, inputs)
        _same_shape(self.name, inputs[:2])
        return Spec((), axes=())

    @staticmethod
    def samples(ctx: Context, *values: Value) -> tuple[list[Any], Any]:
        """The values as [cells, elements], and which cells hold samples, [cells]."""
        axes = max((v.axes for v in values), key=len)
        lead = ctx.lead(axes)
        cells = ctx.mask(axes).shape if lead else ()
        made = []
        for v in values:
            data = ctx.array(ctx.to_axes(v, axes) if v.axes else v)
            data = data.reshape(*(data.shape[:lead] if v.axes else (1,) * lead), -1)
            made.append(jnp.broadcast_to(data, (*cells, data.shape[-1])).reshape(-1, data.shape[-1]))
        return made, ctx.mask(axes).reshape(-1)


def _cosine(x: Any, y: Any) -> Any:
    """Cosine of the angle between vectors in the last axis; 0 where one of them is 0."""
    product = jnp.sum(x * y, -1)
    squares = jnp.sum(x * x, -1) * jnp.sum(y * y, -1)
    positive = squares > 0
    return jnp.where(positive, product * lax.rsqrt(jnp.where(positive, squares, 1)), 0).astype(x.dtype)


@primitive("CosDistance", 53)
class CosDistance(Primitive):
    """The cosine of the angle between two samples.

    Shapes: [*shape] twice -> scalar.
    """

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        """A scalar for each sample."""
        _same_shape(self.name, inputs)
        return ()

    def lower(self, attrs: Attrs, x: Any, y: Any) -> Any:
        """The cosine of flattened samples."""
        return _cosine(x.reshape(-1), y.reshape(-1))


@primitive("CosDistanceWithNegativeSamples", 67)
class CosDistanceWithNegativeSamples(Primitive):
    """The cosine with the sample of the same place, and with those of other places.

    Operands: x, y, the shift to the first negative sample, their number n. The order of the samples is that of the
    grid, step by step, and wraps around.
    Shapes: [*shape] twice -> [1 + n].
    """

    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """[1 + n]; the number has to be a constant."""
        _same_shape(self.name, inputs[:2])
        negatives = getattr(inputs[3], "_array", None)
        if negatives is None:
            raise ShapeError(explain(
                f"{self.name}: the number of negative samples has to be a constant", {"n": inputs[3]}
            ))
        if negatives < 0:
            raise ValueError(f"{self.name}: the number of negative samples is {int(negatives)}")
        return Spec((int(negatives) + 1,), axes=merged_axes(self.name, inputs[:2]))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value, y: Value, shift: Value, n: Value) -> Value:
        """Cosines with rolled samples, padding left out."""
        assert ctx.node is not None
        (xs, ys), mask = WholeMinibatch.samples(ctx, x, y)
        place = jnp.cumsum(mask) - 1
        order = jnp.argsort(~mask, stable=True)  # samples first, then padding
        first = place + ctx.array(shift).astype(place.dtype)
        count = jnp.maximum(jnp.sum(mask), 1)
        others = [ys[order[(first + k) % count]] for k in range(ctx.node.node_outputs[0].shape[0] - 1)]
        made = jnp.stack([_cosine(xs, other) for other in (ys, *others)], -1)
        axes = max(x.axes, y.axes, key=len)
        return Value(made.reshape(*ctx.mask(axes).shape, -1), axes)


@primitive("Logistic", 48)
class Logistic(WholeMinibatch):
    """Weighted cross entropy of probabilities p and labels y: the sum of -w log(yp + (1 - y)(1 - p)), over mean(w).

    The gradient is that of the sum alone.
    """

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        _same_shape(self.name, inputs)
        return super().outputs(inputs, attrs)

    def lower_packed(self, ctx: Context, attrs: Attrs, p: Value, label: Value, *weight: Value) -> Value:
        """The sum, scaled."""
        (chance, true, *w), mask = self.samples(ctx, p, label, *weight)
        right = true * chance + (1 - true) * (1 - chance)
        loss = -ELEMENTWISE["Log"].lower({}, right)
        if not w:
            return Value(jnp.sum(jnp.where(mask[:, None], loss, 0)), ())
        weights = jnp.where(mask[:, None], jnp.broadcast_to(w[0], loss.shape), 0)
        total = jnp.sum(jnp.where(mask[:, None], loss, 0) * weights)
        scaled = total * (jnp.sum(mask) * loss.shape[-1] / jnp.sum(weights)).astype(total.dtype)
        return Value(total + lax.stop_gradient(scaled - total), ())


@primitive("ClassificationError", 36)
class ClassificationError(WholeMinibatch):
    """The number of samples whose label is not among the n largest outputs; of equal outputs the first count as larger.

    Operands: output, label (one-hot, or the largest counts), n.
    """


    def lower_packed(self, ctx: Context, attrs: Attrs, output: Value, label: Value, *n: Value) -> Value:
        """Places of the labels among the outputs."""
        (x, one_hot), mask = self.samples(ctx, output, label)
        true = jnp.argmax(one_hot, -1)[:, None]
        score = jnp.take_along_axis(x, true, -1)
        before = jnp.arange(x.shape[-1]) < true
        place = jnp.sum((x > score) | ((x == score) & before), -1)
        best = ctx.array(n[0]).astype(place.dtype) if n else 1
        return Value(jnp.sum(mask & (place >= best)).astype(x.dtype), ())


# ---- ranking
def _ranks(score: Any, group: Any, mask: Any) -> tuple[Any, Any, Any]:
    """For items in groups: who is in one group with whom, [n, n]; the rank by score, and in the order given, from 1."""
    same = (group[:, None] == group[None, :]) & mask[:, None] & mask[None, :]
    place = jnp.arange(len(score))
    earlier = place[None, :] < place[:, None]
    above = (score[None, :] > score[:, None]) | ((score[None, :] == score[:, None]) & earlier)
    return same, 1 + jnp.sum(same & above, 1), 1 + jnp.sum(same & earlier, 1)


def _discounted(gain: Any, rank: Any) -> Any:
    return gain / jnp.log(1.0 + rank).astype(gain.dtype)


class Ranking(WholeMinibatch):
    """A measure of ranking within groups (queries). Items of a group stand in the order of falling gain."""

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        merged_axes(self.name, inputs)
        if any(prod(v.shape) != 1 for v in inputs):
            names = ("score", "gain", "group")
            raise ShapeError(explain(
                f"{self.name}: a sample has one score, one gain and one group", dict(zip(names, inputs, strict=True))
            ))
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, output: Value, gain: Value, group: Value) -> Value:
        """100 times the mean over groups times the number of items."""
        (score, *columns), mask = self.samples(ctx, output, gain, group)
        items = *(column[:, 0] for column in (score, *columns)), mask
        return Value(self.measure(*items), ())

    def measure(self, score: Any, gain: Any, group: Any, mask: Any) -> Any:
        """The measure of items [n]."""
        raise NotImplementedError

    @staticmethod
    def averaged(per_item: Any, first: Any, mask: Any) -> Any:
        """100 n times the mean over groups of what stands at their first items."""
        groups = jnp.maximum(jnp.sum(first), 1)
        return (100 * jnp.sum(mask) / groups * jnp.sum(jnp.where(first, per_item, 0))).astype(per_item.dtype)


@jax.custom_jvp
def _lambda_rank(score: Any, gain: Any, group: Any, mask: Any) -> Any:
    same, rank, given = _ranks(score, group, mask)
    reached = jnp.sum(jnp.where(same, _discounted(gain, rank)[None, :], 0), 1)
    ideal = jnp.sum(jnp.where(same, _discounted(gain, given)[None, :], 0), 1)
    lost = 1 - jnp.where(ideal > 0, reached / jnp.where(ideal > 0, ideal, 1), 0)
    return Ranking.averaged(lost, mask & (given == 1), mask)


@_lambda_rank.defjvp
def _(primals: Any, tangents: Any) -> Any:
    score, gain, group, mask = primals
    same, rank, given = _ranks(score, group, mask)
    ideal = jnp.sum(jnp.where(same, _discounted(gain, given)[None, :], 0), 1)
    discount = _discounted(jnp.ones_like(gain), rank)
    change = jnp.abs((gain[:, None] - gain[None, :]) * (discount[:, None] - discount[None, :]))
    change = change / jnp.where(ideal > 0, ideal, 1)[:, None]
    # Items of a group are given from the best to the worst: CNTK looks at no pair that stands the other way round.
    better = same & (given[:, None] < given[None, :]) & (gain[:, None] > gain[None, :])
    pull = jnp.where(better, change * jax.nn.sigmoid(score[None, :] - score[:, None]), 0)
    force = jnp.sum(pull, 0) - jnp.sum(pull, 1)
    return _lambda_rank(*primals), jnp.sum(force * tangents[0])


@primitive("LambdaRank", 59)
class LambdaRank(Ranking):
    """100 n (1 - NDCG), with discounts log(1 + rank); its gradient is that of LambdaRank.

    Source: Burges, "From RankNet to LambdaRank to LambdaMART" (MSR-TR-2010-82), section 4; values from CNTK 2.7.
    """

    def measure(self, score: Any, gain: Any, group: Any, mask: Any) -> Any:
        """The loss."""
        return _lambda_rank(score, gain, group, mask)


@primitive("NDCG", 60)
class NDCG(Ranking):
    """100 n times the gain of the item with the highest score over that of the group's first."""


    def measure(self, score: Any, gain: Any, group: Any, mask: Any) -> Any:
        """The measure."""
        same, rank, given = _ranks(score, group, mask)
        top = jnp.sum(jnp.where(same & (rank == 1)[None, :], gain[None, :], 0), 1)
        best = jnp.sum(jnp.where(same & (given == 1)[None, :], gain[None, :], 0), 1)
        return self.averaged(jnp.where(best > 0, top / jnp.where(best > 0, best, 1), 0), mask & (given == 1), mask)


# ---- edit distance
@primitive("EditDistanceError", 61)
class EditDistanceError(WholeMinibatch):
    """Edits that lead from one sequence of tokens to the other along the cheapest way, per token that counts.

    A token is the largest element of a sample. `SquashInputs` takes repeated tokens for one, `TokensToIgnore` are left
    out.
    The number of edits is multiplied by samples / tokens left in the second operand.
    """

    attributes = {
        "SubstitutionPenalty": Float(1.0), "DeletionPenalty": Float(1.0), "InsertionPenalty": Float(1.0),
        "SquashInputs": Bool(False), "TokensToIgnore": Size([]).vector,
    }

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes; the sequences may be along two axes, and then differ in length."""
        _same_shape(self.name, inputs)
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, a: Value, b: Value) -> Value:
        """All sequences at once, row by row of the table."""
        (first, long), (second, lengths) = (self._tokens(ctx, v, max(a.axes, b.axes, key=len)) for v in (a, b))
        (left, m), (right, n) = self._kept(first, long, attrs), self._kept(second, lengths, attrs)
        edits = jnp.sum(jnp.where(long + lengths > 0, self._edits(left, m, right, n, attrs), 0))
        return Value((edits * (jnp.sum(lengths) / jnp.sum(n))).astype(ctx.array(a).dtype), ())

    @staticmethod
    def _tokens(ctx: Context, value: Value, axes: Axes) -> tuple[Any, Any]:
        """The tokens [sequences, time] and the lengths of a value; without a sequence axis it takes the given axes."""
        if ctx.sequence_axis(value.axes) is None:
            value = ctx.to_axes(value, axes) if value.axes else Value(
                jnp.broadcast_to(ctx.array(value), (*ctx.mask(axes).shape, *value.data.shape)), axes
            )
        data, lead = ctx.array(value), ctx.lead(value.axes)
        tokens = jnp.argmax(data.reshape(*data.shape[:lead], -1), -1)
        if lead < 2:
            return tokens.reshape(-1, 1), ctx.mask(value.axes).reshape(-1).astype(jnp.int32)
        layout = ctx.layout(value.axes)
        return layout.at(tokens, jnp.arange(layout.time)[:, None]).T, layout.length

    @staticmethod
    def _kept(tokens: Any, lengths: Any, attrs: Attrs) -> tuple[Any, Any]:
        """The tokens that count, moved to the front of each sequence, and their numbers."""
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
    def _edits(left: Any, m: Any, right: Any, n: Any, attrs: Attrs) -> Any:
        """The numbers of edits, [sequences], by dynamic programming on pairs (cost, number)."""
        substitute, delete, insert = (attrs[k + "Penalty"] for k in ("Substitution", "Deletion", "Insertion"))
        if substitute == delete == insert > 0:
            return _fewest_edits(left, m, right, n)
        columns = jnp.arange(right.shape[1] + 1)
        start = tuple(jnp.broadcast_to(c, (len(left), len(columns))) for c in (columns * insert, columns))

        def row(above: Any, now: Any) -> Any:
            token, i = now
            differs = token[:, None] != right
            deleted = above[0][:, 1:] + delete, above[1][:, 1:] + 1
            changed = above[0][:, :-1] + jnp.where(differs, substitute, 0.0), above[1][:, :-1] + differs
            kept = changed[0] <= deleted[0]
            best: Any = *(jnp.where(kept, c, d) for c, d in zip(changed, deleted, strict=True)), kept
            first = [jnp.full((len(left), 1), c) for c in (i * delete, i, False)]
            best = tuple(jnp.concatenate(pair, 1) for pair in zip(first, best, strict=True))
            # An insertion comes from the left: the least of what any column to the left costs, and the way from there.
            level = (best[0] - columns * insert, best[1] - columns, best[2])
            least = lax.associative_scan(_cheaper, level, axis=1)
            made = (least[0] + columns * insert, least[1] + columns)
            return made, made[1]

        steps = jnp.arange(1, left.shape[1] + 1)
        _, rows = lax.scan(row, (start[0] * 1.0, start[1]), (left.T, steps))
        table = jnp.concatenate([start[1][None], rows])
        return table[m, jnp.arange(len(left)), n]


def _fewest_edits(left: Any, m: Any, right: Any, n: Any) -> Any:
    """The numbers of edits where all cost the same, [sequences]: the cheapest way is one with the fewest."""
    columns = jnp.arange(right.shape[1] + 1)
    start = jnp.broadcast_to(columns, (len(left), len(columns)))

    def row(above: Any, now: Any) -> Any:
        token, i = now
        best = jnp.minimum(above[:, 1:] + 1, above[:, :-1] + (token[:, None] != right))
        best = jnp.concatenate([jnp.full((len(left), 1), i), best], 1)
        made = lax.cummin(best - columns, axis=1) + columns
        return made, made

    _, rows = lax.scan(row, start, (left.T, jnp.arange(1, left.shape[1] + 1)))
    return jnp.concatenate([start[None], rows])[m, jnp.arange(len(left)), n]


def _cheaper(left: tuple[Any, Any, Any], here: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """The cheaper way. Where both cost the same, CNTK prefers to substitute, then to insert, then to delete."""
    first = (left[0] < here[0]) | ((left[0] == here[0]) & ~here[2])
    return tuple(jnp.where(first, a, b) for a, b in zip(left, here, strict=True))
