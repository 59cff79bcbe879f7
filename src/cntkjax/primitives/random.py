"""Operations that draw random numbers. Each node has a seed, and its streams begin at `rngOffset`.

Random tensors of a given shape, samples by constant weights and, on a CPU, numbers for samples whose number is known
before a program runs, are the same that CNTK draws on a CPU; their count is that of its generator. Others are drawn on
the device, from JAX's keys, and count evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, DTypeLike
from ..engine.data.sparse import Sparse
from ..engine.lower.values import Context, Traced
from ..engine.native.program import Operation
from ..engine.plan.parts import constant_elements
from ..graph.build import Spec
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.mersenne import PIECE, MersenneTwister64
from ..graph.shape import Shape, is_known, shape_text, size
from ..graph.variable import Edge, Leaf, has_value, value_of
from .base import Attrs, Bool, Double, DTypeOf, Primitive, ShapeOf, Size, String, primitive

SEED = {"rngSeed": Size, "rngOffset": Size(0)}

# name -> samples from (*arguments, key, shape, type)
_DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "uniform": lambda low, high, key, shape, dtype: jax.random.uniform(key, shape, dtype, low, high),
    "normal": lambda mean, scale, key, shape, dtype: mean + scale * jax.random.normal(key, shape, dtype),
    "gumbel": lambda loc, scale, key, shape, dtype: loc + scale * jax.random.gumbel(key, shape, dtype),
    "bernoulli": lambda mean, key, shape, dtype: jax.random.bernoulli(key, mean, shape).astype(dtype),
}

# the same from CNTK's generator, by (*arguments, generator, number)
_STREAMS: dict[str, Callable[..., np.ndarray]] = {
    "uniform": lambda low, high, generator, n: generator.uniform(n, low, high),
    "normal": lambda mean, scale, generator, n: generator.normal(n) * scale + mean,
    "gumbel": lambda loc, scale, generator, n: loc - scale * np.log(-np.log1p(-generator.uniform(n))),
    "bernoulli": lambda mean, generator, n: generator.uniform(n) >= 1 - mean,
}


@primitive("RandomDistribution", 76)
class RandomDistribution(Primitive):
    """Random numbers of a given shape, or of that of an operand. No gradient.

    Errors: ShapeError for a shape with an unknown dimension.
    """

    attributes = {
        "randomDistributionType": String, "randomDistributionArgs": Double.vector, **SEED,
        "newShape": ShapeOf(None), "newDataType": DTypeOf(None),
    }
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The given shape, or that of the operand."""
        if inputs:
            return Spec(inputs[0].shape)
        if not is_known(attrs["newShape"]):
            raise ShapeError(
                f"{self.name}: the shape {shape_text(attrs['newShape'])} has an open dimension; give all dimensions"
            )
        return Spec(attrs["newShape"], attrs["newDataType"], axes=())

    def draws_on_host(self, node: Node) -> bool:
        """True if the shape is given."""
        return not node.node_inputs

    def draws_columns(self, node: Node) -> bool:
        """True for those like an operand."""
        return bool(node.node_inputs)

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: np.ndarray | None) -> tuple[np.ndarray, int]:
        """All elements."""
        return self._numbers(attrs, generator, attrs["newShape"], attrs["newDataType"])

    def draw_columns(self, node: Node, generator: MersenneTwister64, number: int) -> tuple[np.ndarray, int]:
        """All elements of all columns."""
        (output,) = node.node_outputs
        return self._numbers(node.node_attributes, generator, (number, *output.shape), np.dtype(output.dtype))

    @staticmethod
    def _numbers(
        attrs: Attrs, generator: MersenneTwister64, shape: Shape, dtype: DTypeLike
    ) -> tuple[np.ndarray, int]:
        """CNTK draws normal numbers in pairs."""
        number_type, kind = np.dtype(dtype), attrs["randomDistributionType"]
        arguments = [float(number_type.type(argument)) for argument in attrs["randomDistributionArgs"]]
        number = size(shape) + (size(shape) % 2 if kind == "normal" else 0)
        numbers = _STREAMS[kind](*arguments, generator, number)[:size(shape)]
        return numbers.astype(number_type).reshape(shape), number

    def lower_packed(self, ctx: Context, attrs: Attrs, *like: Traced) -> Traced:
        """The numbers drawn on the host, or else samples for each cell, or each element with a key of its own."""
        drawn = ctx.drawn()
        if drawn is not None:
            return drawn
        draw = partial(_DISTRIBUTIONS[attrs["randomDistributionType"]], *attrs["randomDistributionArgs"])
        if like:
            data, axes = ctx.array(like[0]), like[0].axes
            shape = data.shape[ctx.lead(axes) :]
            return Traced(ctx.draw(axes, lambda key: draw(key, shape, data.dtype)), axes)
        shape, dtype = attrs["newShape"], attrs["newDataType"]
        key, offset = ctx.stream()
        indices = offset + jnp.arange(size(shape), dtype=jnp.uint32)
        numbers = jax.vmap(lambda index: draw(jax.random.fold_in(key, index), (), dtype))(indices)
        return Traced(numbers.reshape(shape), ())


@primitive("Dropout", 15)
class Dropout(Primitive):
    """In training a fraction of the elements is set to 0, and the others are scaled up so that the mean is kept.

    Source: Srivastava et al., "Dropout", JMLR 15 (2014).
    """

    attributes = {"dropoutRate": Double, **SEED}
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the operand."""
        return inputs[0].shape

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any]:
        """Outside of training it changes nothing."""
        return np.copy

    def draws(self, attrs: Attrs, training: bool) -> bool:
        """True in training."""
        return training and attrs["dropoutRate"] > 0

    def draws_columns(self, node: Node) -> bool:
        """True for all."""
        return True

    def draw_columns(self, node: Node, generator: MersenneTwister64, number: int) -> tuple[np.ndarray, int]:
        """False for elements that are set to 0."""
        (output,) = node.node_outputs
        count = number * size(output.shape)
        first_kept = _first_above(node.node_attributes["dropoutRate"], np.dtype(output.dtype))
        kept = np.empty(count, bool)
        for begin in range(0, count, PIECE):
            piece = kept[begin : begin + PIECE]
            np.greater_equal(generator.raw(len(piece)), first_kept, out=piece)
        return kept.reshape(number, *output.shape), count

    def by_steps(self, node: Node) -> Operation:
        """The operand."""
        return Operation(lambda writer, x: writer.same(x), of_steps=True)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> Traced:
        """The operand with a random mask in training, otherwise unchanged."""
        rate = attrs["dropoutRate"]
        if not ctx.training or rate == 0:
            return x
        drawn = ctx.drawn()
        if x.is_sparse or (drawn is not None and x.axes != drawn.axes):
            x = ctx.to_axes(ctx.canonical(x), x.axes if drawn is None else drawn.axes)
        data, lead = x.data, ctx.lead(x.axes)
        if drawn is None:
            mask = ctx.draw(x.axes, lambda key: jax.random.bernoulli(key, 1 - rate, data.shape[lead:]))
        else:
            mask = jnp.moveaxis(drawn.data, lead, -1) if x.channels_last else drawn.data
        scaled = data * jnp.asarray(1 / (1 - rate), data.dtype)
        axes = x.axes if drawn is None else drawn.axes
        return replace(x, data=jnp.where(mask, scaled, jnp.zeros((), data.dtype)), axes=axes)


@lru_cache
def _first_above(rate: float, dtype: np.dtype[Any]) -> np.uint64:
    """The first number of 64 bits whose part of 2^64, in this type, exceeds a rate: CNTK drops what does not."""
    low, high = 0, 2**64 - 1
    while low < high:
        middle = (low + high) // 2
        is_above = dtype.type(np.uint64(middle)) / dtype.type(2.0**64) > dtype.type(rate)
        low, high = (low, middle) if is_above else (middle + 1, high)
    return np.uint64(low)


class Sampling(Primitive):
    """Draws classes by their weights.

    Shapes: weights [*shape], not negative; they need not sum to 1.
    Errors: ShapeError if no classes are requested, or more different ones than there are; ValueError for constant
            weights that are negative.
    """

    attributes = {"numSamples": Size, "allowDuplicates": Bool, **SEED}

    def draws_on_host(self, node: Node) -> bool:
        """True if the weights are constant, such as a constant as one row, which programs with sampled softmax take."""
        return constant_elements(node.node_inputs[0]) is not None

    def check(self, weights: Edge, attrs: Attrs) -> None:
        """Raise an error for weights or numbers that nothing can be drawn with."""
        n = int(np.prod(weights.shape))
        if attrs["numSamples"] < 1:
            raise ShapeError(explain(
                f"{self.name}: at least one class has to be drawn", {"weights": weights}, "give num_samples >= 1"
            ))
        if isinstance(weights, Leaf) and has_value(weights) and np.any(np.asarray(value_of(weights)) < 0):
            raise ValueError(explain(
                f"{self.name}: the weights must not be negative", {"weights": weights}, "give weights from 0 on"
            ))
        if not attrs["allowDuplicates"] and 0 <= n <= attrs["numSamples"]:
            raise ShapeError(explain(
                f"{self.name}: {attrs['numSamples']} different classes cannot be drawn, for there are {n}",
                {"weights": weights}, "draw fewer than there are, or allow duplicates",
            ))


@primitive("RandomSample", 45)
class RandomSample(Sampling):
    """Random classes as sparse one-hot rows.

    Shapes: weights [n] -> [numSamples, n].
    Errors: ValueError for constant weights of fewer classes than are to be drawn without duplicates.
    """

    packed = True

    def makes_sparse(self, attrs: Attrs) -> bool:
        """True: one-hot rows."""
        return True

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: np.ndarray | None) -> tuple[np.ndarray, int]:
        """The classes; without duplicates, repeated ones are skipped."""
        assert weights is not None
        n, draw = attrs["numSamples"], _by_weight(self, attrs, weights, generator)
        return (draw(n), n) if attrs["allowDuplicates"] else _different(n, draw)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """[numSamples, n]."""
        (weights,) = inputs
        self.check(weights, attrs)
        return (attrs["numSamples"], int(np.prod(weights.shape)))

    def lower_packed(self, ctx: Context, attrs: Attrs, weights: Traced) -> Traced:
        """The classes drawn on the host, or else: without duplicates, those with the largest log + Gumbel noise."""
        data, k = ctx.array(weights), attrs["numSamples"]
        lead = data.shape[: ctx.lead(weights.axes)]
        data = data.reshape(*lead, -1)
        n = data.shape[-1]
        drawn = ctx.drawn()
        if drawn is not None:
            classes = drawn.data
        elif attrs["allowDuplicates"]:
            fractions = ctx.draw(weights.axes, lambda key: jax.random.uniform(key, (2, k), _wide(data.dtype)))
            classes = _classes(fractions, data)
        else:
            noise = ctx.draw(weights.axes, lambda key: jax.random.gumbel(key, (n,), data.dtype))
            classes = jax.lax.top_k(jnp.log(data) + noise, k)[1]
        indices = classes.astype(jnp.int32) + n * jnp.arange(k, dtype=jnp.int32)
        return Traced(Sparse(indices, jnp.ones(indices.shape, data.dtype), (k, n), data.dtype), weights.axes)


def _wide(dtype: np.dtype) -> np.dtype:
    return jnp.promote_types(dtype, jnp.float32)


def _classes(fractions: Array, weights: Array) -> Array:
    """Classes drawn by their weights, [*lead, n], with random numbers from 0 to 1, [*lead, 2, k] -> [*lead, k].

    First one of about sqrt(n) groups is drawn, then a class in it: each draw searches two short cumulative sums, where
    noise on all weights would take n random numbers (25 ms instead of 1 for 256 of 4,096 classes).
    """
    *lead, n = weights.shape
    side = ceil(sqrt(n))
    wide = weights.astype(_wide(weights.dtype))
    groups = jnp.pad(wide, [(0, 0)] * len(lead) + [(0, side * side - n)]).reshape(*lead, side, side)
    first, second = fractions[..., 0, :], fractions[..., 1, :]
    group = _search(jnp.sum(groups, -1)[..., None, :], first)
    return side * group + _search(jnp.take_along_axis(groups, group[..., None], -2), second)


def _search(weights: Array, fraction: Array) -> Array:
    """The first index where the cumulative sum of weights [..., n] exceeds a fraction [...] of the total.

    Its weight is never 0.
    """
    sums = jnp.cumsum(weights, -1)
    index = jnp.sum(sums <= fraction[..., None] * sums[..., -1:], -1)
    return jnp.minimum(index, jnp.sum(sums < sums[..., -1:], -1))


@primitive("RandomSampleInclusionFrequency", 46)
class RandomSampleInclusionFrequency(Sampling):
    """The expected count of each class in a sample.

    For probabilities p and k samples: k p with duplicates. Without, 1 - (1 - p)^t, where t is the number of draws that
    give k different classes: for constant weights the mean of ten trials, as in CNTK; otherwise such that the sum of
    the counts is k.

    Shapes: those of the weights.
    """

    packed = True
    keeps_numbers = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the weights."""
        self.check(inputs[0], attrs)
        return inputs[0].shape

    def draws_on_host(self, node: Node) -> bool:
        """True if the weights are constant and trials are needed."""
        return super().draws_on_host(node) and not node.node_attributes["allowDuplicates"]

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: np.ndarray | None) -> tuple[np.ndarray, int]:
        """The mean number of draws."""
        assert weights is not None
        draw = _by_weight(self, attrs, weights, generator)
        used = sum(_different(attrs["numSamples"], draw)[1] for _ in range(_TRIALS))
        return np.array(used / _TRIALS, weights.dtype), used

    def lower_packed(self, ctx: Context, attrs: Attrs, weights: Traced) -> Traced:
        """The expected counts."""
        lead = ctx.lead(weights.axes)
        drawn = ctx.drawn()
        tries = None if drawn is None else drawn.data
        expected = partial(_expected, attrs["numSamples"], attrs["allowDuplicates"], tries)
        for _ in range(lead):
            expected = jax.vmap(expected)
        return Traced(expected(ctx.array(weights)), weights.axes)


_TRIALS = 10


def _by_weight(
    op: Primitive, attrs: Attrs, weights: np.ndarray, generator: MersenneTwister64
) -> Callable[[int], np.ndarray]:
    """A function that draws classes, each the first whose cumulative weight exceeds a random part of the total."""
    possible, requested = np.count_nonzero(weights), attrs["numSamples"]
    if possible < (1 if attrs["allowDuplicates"] else requested):
        raise ValueError(
            f"{op.name}: {requested} classes cannot be drawn, for only {possible} have a weight above 0; draw "
            "fewer, or allow duplicates"
        )
    sums = np.cumsum(np.asarray(weights, np.float64))
    fractions = sums / sums[-1]
    return lambda n: np.searchsorted(fractions, generator.uniform(n), side="right").astype(np.int32)


def _different(number: int, draw: Callable[[int], np.ndarray]) -> tuple[np.ndarray, int]:
    """This number of different classes, and the number of draws that they took."""
    classes: dict[int, None] = {}
    used = 0
    while (missing := number - len(classes)) > 0:
        classes |= dict.fromkeys(draw(missing).tolist())
        used += missing
    return np.array(list(classes), np.int32), used


def _expected(k: int, duplicates: bool, tries: AnyArray | None, weights: Array) -> Array:
    """The expected count of each class among k; ``tries``: the number of draws for k different ones, or None."""
    p = weights / jnp.sum(weights)
    if duplicates:
        return k * p
    rate = -jnp.log1p(-jnp.minimum(p, 1 - jnp.finfo(p.dtype).epsneg))

    def included(t: AnyArray) -> Array:
        return -jnp.expm1(-t * rate)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (bounds[0] + bounds[1]) / 2
        is_low = jnp.sum(included(middle)) < k
        return jnp.where(is_low, middle, bounds[0]), jnp.where(is_low, bounds[1], middle)

    def too_few(t: Array) -> Array:
        return (jnp.sum(included(t)) < k) & jnp.isfinite(t)

    if tries is not None:
        return included(tries)
    upper = jax.lax.while_loop(too_few, lambda t: 2 * t, jnp.asarray(1.0 * k, p.dtype))
    low, high = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(upper), upper))
    return included((low + high) / 2)
