"""Operations that draw random numbers. Each node has a seed, and counts in `rngOffset` what it has drawn.

Random tensors of a given shape, and samples of constant weights, are the very numbers that CNTK draws on a CPU; they
count what its generator makes. Others draw on the device, from JAX's keys, and count evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.data.sparse import Sparse
from ..engine.lower.values import Context, Value
from ..graph.build import Spec
from ..graph.errors import ShapeError, explain
from ..graph.function import Function
from ..graph.mersenne import MersenneTwister64
from ..graph.shape import is_known, shape_text, size
from ..graph.variable import Leaf, Variable, has_value, value_of
from .base import Attrs, Bool, Double, DTypeOf, Primitive, ShapeOf, Size, String, primitive

SEED = {"rngSeed": Size, "rngOffset": Size(0)}

# name: samples from (*arguments, key, shape, type)
_DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "uniform": lambda low, high, key, shape, dtype: jax.random.uniform(key, shape, dtype, low, high),
    "normal": lambda mean, scale, key, shape, dtype: mean + scale * jax.random.normal(key, shape, dtype),
    "gumbel": lambda loc, scale, key, shape, dtype: loc + scale * jax.random.gumbel(key, shape, dtype),
    "bernoulli": lambda mean, key, shape, dtype: jax.random.bernoulli(key, mean, shape).astype(dtype),
}

# the same from CNTK's generator: (*arguments, generator, number)
_STREAMS: dict[str, Callable[..., np.ndarray]] = {
    "uniform": lambda low, high, generator, n: generator.uniform(n, low, high),
    "normal": lambda mean, scale, generator, n: generator.normal(n) * scale + mean,
    "gumbel": lambda loc, scale, generator, n: loc - scale * np.log(-np.log1p(-generator.uniform(n))),
    "bernoulli": lambda mean, generator, n: generator.uniform(n) >= 1 - mean,
}


@primitive("RandomDistribution", 76)
class RandomDistribution(Primitive):
    """Random numbers in a given shape, or in that of an operand. No gradient.

    Errors: ShapeError for a shape that is not known.
    """

    attributes = {
        "randomDistributionType": String, "randomDistributionArgs": Double.vector, **SEED,
        "newShape": ShapeOf(None), "newDataType": DTypeOf(None),
    }
    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """The given shape, or that of the operand."""
        if inputs:
            return Spec(inputs[0].shape)
        if not is_known(attrs["newShape"]):
            raise ShapeError(f"{self.name}: the shape {shape_text(attrs['newShape'])} has an open dimension")
        return Spec(attrs["newShape"], attrs["newDataType"], axes=())

    def draws_on_host(self, node: Function) -> bool:
        """Where the shape is given."""
        return not node.node_inputs

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: Any) -> tuple[np.ndarray, int]:
        """All elements; CNTK draws normal ones in pairs."""
        shape, dtype, kind = attrs["newShape"], np.dtype(attrs["newDataType"]), attrs["randomDistributionType"]
        arguments = [float(dtype.type(argument)) for argument in attrs["randomDistributionArgs"]]
        number = size(shape) + (size(shape) % 2 if kind == "normal" else 0)
        numbers = _STREAMS[kind](*arguments, generator, number)[:size(shape)]
        return numbers.astype(dtype).reshape(shape), number

    def lower_packed(self, ctx: Context, attrs: Attrs, *like: Value) -> Value:
        """The numbers that were drawn; otherwise samples for each cell, or each with the key of its place."""
        numbers = ctx.drawn()
        if numbers is not None:
            return Value(numbers, ())
        draw = partial(_DISTRIBUTIONS[attrs["randomDistributionType"]], *attrs["randomDistributionArgs"])
        if like:
            data, axes = ctx.array(like[0]), like[0].axes
            if ctx.lead(axes) < 2:
                return Value(draw(ctx.key(), data.shape, data.dtype), axes)
            # A key for each row: what a sequence gets does not depend on how far the grid is padded.
            keys = jax.vmap(jax.random.fold_in, (None, 0))(ctx.key(), jnp.arange(data.shape[1]))
            shape = data.shape[:1] + data.shape[2:]
            return Value(jax.vmap(lambda key: draw(key, shape, data.dtype), out_axes=1)(keys), axes)
        shape, dtype = attrs["newShape"], attrs["newDataType"]
        key, offset = ctx.stream()
        places = offset + jnp.arange(size(shape), dtype=jnp.uint32)
        made = jax.vmap(lambda place: draw(jax.random.fold_in(key, place), (), dtype))(places)
        return Value(made.reshape(shape), ())


@primitive("Dropout", 15)
class Dropout(Primitive):
    """In training a share of the elements is set to 0, and the others are made larger so that the mean stays.

    Source: Srivastava et al., "Dropout", JMLR 15 (2014).
    """

    attributes = {"dropoutRate": Double, **SEED}
    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        """The shape of the operand."""
        return inputs[0].shape

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value) -> Value:
        """A random mask, or the operand itself outside of training."""
        rate = attrs["dropoutRate"]
        if not ctx.training or rate == 0:
            return x
        data = ctx.array(x) if x.is_sparse else x.data
        kept = jax.random.bernoulli(ctx.key(), 1 - rate, data.shape)
        scaled = data * jnp.asarray(1 / (1 - rate), data.dtype)
        return replace(x, data=jnp.where(kept, scaled, jnp.zeros((), data.dtype)))


class Sampling(Primitive):
    """Drawing classes by their weights.

    Shapes: weights [*shape], not negative; they need not sum to 1.
    Errors: ShapeError if no classes are to be drawn, or more different ones than there are; ValueError for weights that
            are known to be negative.
    """

    attributes = {"numSamples": Size, "allowDuplicates": Bool, **SEED}

    def draws_on_host(self, node: Function) -> bool:
        """Where the weights are known."""
        return node.node_inputs[0].is_constant

    def check(self, weights: Variable, attrs: Attrs) -> None:
        """Raise an error for what cannot be drawn."""
        n = int(np.prod(weights.shape))
        if attrs["numSamples"] < 1:
            raise ShapeError(explain(f"{self.name}: at least one class has to be drawn", {"weights": weights}))
        if isinstance(weights, Leaf) and has_value(weights) and np.any(np.asarray(value_of(weights)) < 0):
            raise ValueError(explain(f"{self.name}: the weights must not be negative", {"weights": weights}))
        if not attrs["allowDuplicates"] and 0 <= n <= attrs["numSamples"]:
            raise ShapeError(explain(
                f"{self.name}: {attrs['numSamples']} different classes cannot be drawn, for there are {n}",
                {"weights": weights}, "draw fewer than there are, or allow duplicates",
            ))


@primitive("RandomSample", 45)
class RandomSample(Sampling):
    """Random classes as one-hot rows, kept sparse.

    Shapes: weights [n] -> [numSamples, n].
    Errors: ValueError for constant weights of fewer classes than are to be drawn without duplicates.
    """

    packed = True

    def makes_sparse(self, attrs: Attrs) -> bool:
        """One-hot rows."""
        return True

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: Any) -> tuple[np.ndarray, int]:
        """The classes; without duplicates those that come again are passed over."""
        n, draw = attrs["numSamples"], _by_weight(self, attrs, weights, generator)
        return (draw(n), n) if attrs["allowDuplicates"] else _different(n, draw)

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        """[numSamples, n]."""
        (weights,) = inputs
        self.check(weights, attrs)
        return (attrs["numSamples"], int(np.prod(weights.shape)))

    def lower_packed(self, ctx: Context, attrs: Attrs, weights: Value) -> Value:
        """What was drawn; otherwise without duplicates the classes of the largest logarithms with Gumbel noise."""
        data, k = ctx.array(weights), attrs["numSamples"]
        lead = data.shape[: ctx.lead(weights.axes)]
        data = data.reshape(*lead, -1)
        n = data.shape[-1]
        numbers = ctx.drawn()
        if numbers is not None:
            classes = numbers
        elif attrs["allowDuplicates"]:
            classes = _classes(ctx.key(), data, k)
        else:
            noisy = jnp.log(data) + jax.random.gumbel(ctx.key(), data.shape, data.dtype)
            classes = jax.lax.top_k(noisy, k)[1]
        indices = classes.astype(jnp.int32) + n * jnp.arange(k, dtype=jnp.int32)
        return Value(Sparse(indices, jnp.ones(indices.shape, data.dtype), (k, n), data.dtype), weights.axes)


def _classes(key: Any, weights: Any, k: int) -> Any:
    """Classes drawn by their weights, [*lead, n] -> [*lead, k].

    First one of about sqrt(n) groups, then a class in it: two short sums of weights are searched for each draw, where
    noise on all weights would take n random numbers (25 ms instead of 1 for 256 of 4,096 classes).
    """
    *lead, n = weights.shape
    side = ceil(sqrt(n))
    wide = weights.astype(jnp.promote_types(weights.dtype, jnp.float32))
    groups = jnp.pad(wide, [(0, 0)] * len(lead) + [(0, side * side - n)]).reshape(*lead, side, side)
    first, second = jax.random.uniform(key, (2, *lead, k), wide.dtype)
    group = _place(jnp.sum(groups, -1)[..., None, :], first)
    return side * group + _place(jnp.take_along_axis(groups, group[..., None], -2), second)


def _place(weights: Any, share: Any) -> Any:
    """The place where the sum of weights [..., n] gets beyond a share of all [...]; one with a weight."""
    sums = jnp.cumsum(weights, -1)
    place = jnp.sum(sums <= share[..., None] * sums[..., -1:], -1)
    return jnp.minimum(place, jnp.sum(sums < sums[..., -1:], -1))


@primitive("RandomSampleInclusionFrequency", 46)
class RandomSampleInclusionFrequency(Sampling):
    """How often each class is expected in a sample.

    With probabilities p, and k samples: k p with duplicates. Without, 1 - (1 - p)^t, where t is how many draws give k
    different classes: for constant weights the mean of ten trials, as in CNTK; otherwise such that k are expected.
    """

    packed = True
    keeps_numbers = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        """The shape of the weights."""
        self.check(inputs[0], attrs)
        return inputs[0].shape

    def draws_on_host(self, node: Function) -> bool:
        """Where the weights are known, and something has to be tried."""
        return super().draws_on_host(node) and not node.node_attributes["allowDuplicates"]

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: Any) -> tuple[np.ndarray, int]:
        """The mean of the draws."""
        draw = _by_weight(self, attrs, weights, generator)
        used = sum(_different(attrs["numSamples"], draw)[1] for _ in range(_TRIALS))
        return np.array(used / _TRIALS, weights.dtype), used

    def lower_packed(self, ctx: Context, attrs: Attrs, weights: Value) -> Value:
        """The expectation."""
        lead = ctx.lead(weights.axes)
        expected = partial(_expected, attrs["numSamples"], attrs["allowDuplicates"], ctx.drawn())
        for _ in range(lead):
            expected = jax.vmap(expected)
        return Value(expected(ctx.array(weights)), weights.axes)


_TRIALS = 10


def _by_weight(
    op: Primitive, attrs: Attrs, weights: Any, generator: MersenneTwister64
) -> Callable[[int], np.ndarray]:
    """Draws so many classes: each the first at which the sum of the weights gets beyond a random share of all."""
    possible, asked = np.count_nonzero(weights), attrs["numSamples"]
    if possible < (1 if attrs["allowDuplicates"] else asked):
        raise ValueError(f"{op.name}: {asked} classes cannot be drawn, for only {possible} have a weight above 0")
    sums = np.cumsum(np.asarray(weights, np.float64))
    shares = sums / sums[-1]
    return lambda n: np.searchsorted(shares, generator.uniform(n), side="right").astype(np.int32)


def _different(number: int, draw: Callable[[int], np.ndarray]) -> tuple[np.ndarray, int]:
    """The first so many different classes, and how many draws they took."""
    classes: dict[int, None] = {}
    used = 0
    while (missing := number - len(classes)) > 0:
        classes |= dict.fromkeys(draw(missing).tolist())
        used += missing
    return np.array(list(classes), np.int32), used


def _expected(k: int, duplicates: bool, tries: Any, weights: Any) -> Any:
    """How often each class is expected among k; ``tries``: the draws that give so many different ones, if known."""
    p = weights / jnp.sum(weights)
    if duplicates:
        return k * p
    rate = -jnp.log1p(-jnp.minimum(p, 1 - jnp.finfo(p.dtype).epsneg))

    def included(t: Any) -> Any:
        return -jnp.expm1(-t * rate)

    def halve(_: Any, bounds: Any) -> Any:
        middle = (bounds[0] + bounds[1]) / 2
        few = jnp.sum(included(middle)) < k
        return jnp.where(few, middle, bounds[0]), jnp.where(few, bounds[1], middle)

    def too_few(t: Any) -> Any:
        return (jnp.sum(included(t)) < k) & jnp.isfinite(t)

    if tries is not None:
        return included(tries)
    upper = jax.lax.while_loop(too_few, lambda t: 2 * t, jnp.asarray(1.0 * k, p.dtype))
    low, high = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(upper), upper))
    return included((low + high) / 2)
