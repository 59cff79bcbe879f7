"""The links that learners are chained from, as optax transformations.

Each link is a rule for one parameter, a pure function of its gradient, its value and the rule's own state, turned into
a transformation by :func:`per_parameter`. What changes from step to step is passed in ``hyper``, scalars computed on
the host, so that one compiled program serves all steps:

    divisor, weight     gradients are sums over n samples: divided by ``divisor`` they stand for ``weight`` samples
                        (n and 1 where the learner averages, 1 and n otherwise)
    rate                the learning rate for such a gradient
    momentum, gain      m and the factor of the new gradient: 1 - m (unit gain) or 1
    variance            v of the running mean of squares; its 1 - v is taken in the parameters' precision, as CNTK does
    count               adam: number of updates; fsadagrad: the smoothed number of samples
    bias                adam: the bias correction of both means
    noise, seed         standard deviation, and a key for the random numbers

The rules compute the *decrease* of a parameter; the link "descend" of every chain changes its sign.

The gradient of an embedding may be :class:`Rows`, those that a minibatch looked up. The rule then gets only these rows
of the parameter and of the state, and the others are not changed, as in CNTK. Links that change every row (weight
decay, noise, adadelta's running means) convert the gradient to a dense array first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from .._typing import PyTree
from ..engine.lower.rows import Rows, dense
from ..parallel.sharding import WHOLE, Whole

Hyper = Mapping[str, ArrayLike]
Rule = Callable[..., tuple[Array, ...]]
Mean = Callable[[Array], Array]


class Trace(NamedTuple):
    """Unit-gain momentum: the smoothed steps."""

    trace: PyTree


class SumOfSquares(NamedTuple):
    """adagrad: the sum of the squares of the gradients."""

    squares: PyTree


class Moments(NamedTuple):
    """adam, adamax, fsadagrad: running means of the squares (adamax: a decaying maximum) and of the gradients."""

    squares: PyTree
    trace: PyTree


class DeltaMoments(NamedTuple):
    """adadelta: running means of the squares of gradients and of steps."""

    squares: PyTree
    deltas: PyTree


class StepSizes(NamedTuple):
    """rmsprop: running mean of the squares, sign of the last gradient, and step size (0 before the first update)."""

    squares: PyTree
    signs: PyTree
    steps: PyTree


class MasterWeights(NamedTuple):
    """float32 copies of the float16 parameters (None for others), and the state of the learner on them."""

    weights: PyTree
    inner: PyTree


class PerParameter(optax.GradientTransformationExtraArgs):
    """A transformation that can work on parts of parameters."""


def per_parameter(
    rule: Rule, state_type: type[Any] = optax.EmptyState, *, for_rows: Rule | None = None, every_row: bool = False
) -> optax.GradientTransformationExtraArgs:
    """A transformation that applies ``rule(g, w, *state, **hyper) -> (update, *state)`` to each parameter by itself.

    A rule gets one gradient, one parameter and that parameter's part of each field of ``state_type``, all of one shape
    and type; the state is zero before the first step. Where only some rows of a parameter have a gradient, the rule is
    applied to these rows, unless there is another one ``for_rows``, or it changes ``every_row``. ``mean`` and ``total``
    among its keywords compute the mean and the sum of such an array, also where the rule sees only a part of it
    (``seen``, see parallel/sharding.py). An example is :func:`nesterov`.
    """

    def init(params: PyTree) -> PyTree:
        return state_type(*(optax.tree.zeros_like(params) for _ in state_type._fields))

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, *, hyper: Hyper, seen: Whole = WHOLE, **_: Any
    ) -> tuple[PyTree, PyTree]:
        gradients, structure = jax.tree.flatten(densify(updates) if every_row else updates, is_leaf=_is_rows)
        columns = [gradients, *(jax.tree.leaves(column) for column in (params, *state))]
        scalars = {dtype: _scalars(hyper, dtype) for dtype in {g.dtype for g in gradients}}
        results = [
            _to_rows(for_rows or rule, scalars[g.dtype], seen, g, *rest)
            if isinstance(g, Rows) else rule(g, *rest, mean=partial(seen.mean, i), total=seen.total, **scalars[g.dtype])
            for i, (g, *rest) in enumerate(zip(*columns, strict=True))
        ]
        updates, *fields = (jax.tree.unflatten(structure, column) for column in zip(*results, strict=True))
        return updates, state_type(*fields)

    return PerParameter(init, update)


def _to_rows(rule: Rule, scalars: dict[str, Any], seen: Whole, g: Rows, w: Array, *state: Array) -> tuple[Any, ...]:
    mean = partial(g.mean, total=seen.total)
    update, *changed = rule(g.values, g.take(w), *map(g.take, state), mean=mean, total=seen.total, **scalars)
    return replace(g, values=update), *(g.put(old, new) for old, new in zip(state, changed, strict=True))


def _is_rows(x: object) -> bool:
    return isinstance(x, Rows)


def densify(updates: PyTree) -> PyTree:
    """Gradients as dense arrays; those that are :class:`Rows` are expanded."""
    return jax.tree.map(dense, updates, is_leaf=_is_rows)


def _scalars(hyper: Hyper, dtype: np.dtype[Any]) -> dict[str, Array]:
    return {name: jnp.asarray(value, dtype) for name, value in hyper.items() if name != "seed"}


# ---------------------------------------------------------------- links before the rule


def _average(g: Array, w: Array, divisor: Array, **_: Any) -> tuple[Array]:
    return (g / divisor,)


def average() -> optax.GradientTransformationExtraArgs:
    """The mean over the samples if the learner averages gradients (then ``divisor`` is their number), else the sum."""
    return per_parameter(_average)


def clip_by_value(threshold: float) -> optax.GradientTransformationExtraArgs:
    """Every element clipped to ±``threshold`` per sample."""

    def rule(g: Array, w: Array, weight: Array, **_: Any) -> tuple[Array]:
        return (jnp.clip(g, -threshold * weight, threshold * weight),)

    return per_parameter(rule)


def clip_by_norm(threshold: float) -> optax.GradientTransformationExtraArgs:
    """Each gradient scaled down to a Frobenius norm of ``threshold`` per sample."""

    def rule(g: Array, w: Array, weight: Array, total: Mean, **_: Any) -> tuple[Array]:
        norm, limit = jnp.sqrt(total(g * g)), threshold * weight
        return (jnp.where(norm > limit, g * (limit / norm), g),)

    return per_parameter(rule)


def add_l2(strength: float) -> optax.GradientTransformationExtraArgs:
    """The gradient of ``strength / 2 * |w|²`` per sample."""

    def rule(g: Array, w: Array, weight: Array, **_: Any) -> tuple[Array]:
        return (g + strength * weight * w,)

    return per_parameter(rule, every_row=True)


# ---------------------------------------------------------------- rules


def _rate(g: Array, w: Array, rate: Array, **_: Any) -> tuple[Array]:
    return (rate * g,)


def scale_by_rate() -> optax.GradientTransformationExtraArgs:
    """The gradient times the learning rate."""
    return per_parameter(_rate)


def _momentum(g: Array, w: Array, trace: Array, momentum: Array, gain: Array, **_: Any) -> tuple[Array, Array]:
    trace = momentum * trace + gain * g
    return trace, trace


def _momentum_of_rows(
    g: Array, w: Array, trace: Array, momentum: Array, gain: Array, rate: Array, **_: Any
) -> tuple[Array, Array]:
    trace = momentum * trace + gain * (g / rate)
    return rate * trace, trace


def momentum() -> optax.GradientTransformationExtraArgs:
    """s <- m s + u g; the update is s.

    For rows CNTK smooths the gradients before they are multiplied by the rate.
    """
    return per_parameter(_momentum, Trace, for_rows=_momentum_of_rows)


def _nesterov(g: Array, w: Array, trace: Array, momentum: Array, gain: Array, **_: Any) -> tuple[Array, Array]:
    trace = momentum * trace + gain * g
    return momentum * trace + gain * g, trace


def nesterov() -> optax.GradientTransformationExtraArgs:
    """s <- m s + u g; the update is m s + u g."""
    return per_parameter(_nesterov, Trace)


def adagrad(normalize: bool) -> optax.GradientTransformationExtraArgs:
    """a <- a + g²; the update is g / √a, with ``normalize`` divided by the parameter's mean of 1 / √a."""

    def rule(g: Array, w: Array, squares: Array, mean: Mean, **_: Any) -> tuple[Array, Array]:
        squares = squares + g * g
        factor = 1 / jnp.sqrt(squares + 1e-16)
        return _scaled(g, factor, mean if normalize else None), squares

    return per_parameter(rule, SumOfSquares)


def adadelta(rho: float, epsilon: float) -> optax.GradientTransformationExtraArgs:
    """Zeiler 2012: the update is g · rms(past updates) / rms(past gradients)."""

    def rule(g: Array, w: Array, squares: Array, deltas: Array, **_: Any) -> tuple[Array, Array, Array]:
        squares = rho * squares + (1 - rho) * g * g
        delta = g * jnp.sqrt(deltas + epsilon) / jnp.sqrt(squares + epsilon)
        return delta, squares, rho * deltas + (1 - rho) * delta * delta

    return per_parameter(rule, DeltaMoments, every_row=True)


def adam(epsilon: float) -> optax.GradientTransformationExtraArgs:
    """Kingma and Ba 2014, with a unit-gain momentum: a <- v a + (1-v) g²; the update is bias · s / (√a + ε)."""

    def rule(
        g: Array, w: Array, squares: Array, trace: Array,
        momentum: Array, gain: Array, variance: Array, bias: Array, **_: Any,
    ) -> tuple[Array, Array, Array]:
        squares = variance * squares + (1 - variance) * g * g
        trace = momentum * trace + gain * g
        return bias * trace / (jnp.sqrt(squares) + epsilon), squares, trace

    return per_parameter(rule, Moments)


def adamax(epsilon: float) -> optax.GradientTransformationExtraArgs:
    """Section 7.1 of the same paper: a <- max(v a, |g|); the update is bias · s / (a + ε)."""

    def rule(
        g: Array, w: Array, squares: Array, trace: Array,
        momentum: Array, gain: Array, variance: Array, bias: Array, **_: Any,
    ) -> tuple[Array, Array, Array]:
        squares = jnp.maximum(variance * squares, jnp.abs(g))
        trace = momentum * trace + gain * g
        return bias * trace / (squares + epsilon), squares, trace

    return per_parameter(rule, Moments)


def _fsadagrad(
    g: Array, w: Array, squares: Array, trace: Array,
    momentum: Array, gain: Array, variance: Array, count: Array, **_: Any,
) -> tuple[Array, Array, Array]:
    squares = variance * squares + (1 - variance) * g * g
    g = g * jnp.minimum(jnp.sqrt(count) / jnp.sqrt(squares), 10)
    smoothed = momentum * trace + gain * g
    without = momentum == 0  # then the past is neither used nor updated
    return jnp.where(without, g, smoothed), squares, jnp.where(without, trace, smoothed)


def fsadagrad() -> optax.GradientTransformationExtraArgs:
    """Frank Seide's adagrad: g is divided by its running rms per sample, at most tenfold, and then smoothed."""
    return per_parameter(_fsadagrad, Moments)


def rmsprop(
    gamma: float, inc: float, dec: float, largest: float, smallest: float, normalize: bool
) -> optax.GradientTransformationExtraArgs:
    """Tieleman and Hinton 2012, with a step size for each element that grows while the gradient keeps its sign."""

    def rule(
        g: Array, w: Array, squares: Array, signs: Array, steps: Array, mean: Mean, **_: Any
    ) -> tuple[Array, Array, Array, Array]:
        first = steps == 0
        squares = jnp.where(first, g * g, gamma * squares + (1 - gamma) * g * g)
        steps = jnp.where(first, 0.02, steps)
        steps = jnp.where(
            signs * g > 0, jnp.minimum(steps * inc, largest), jnp.maximum(steps * dec, smallest)
        )
        factor = steps / jnp.sqrt(squares + 1e-6)
        return _scaled(g, factor, mean if normalize else None), squares, jnp.sign(g), steps

    return per_parameter(rule, StepSizes)


def _scaled(g: Array, factor: Array, mean: Mean | None) -> Array:
    """Gradients times factors, normalized to mean 1. If that is infinite, as steps can overflow, the update is zero."""
    if mean is None:
        return g * factor
    average = mean(factor)
    return jnp.where(jnp.isinf(average), 0, g * (factor / average))


def _descend(g: Array, w: Array, **_: Any) -> tuple[Array]:
    return (-g,)


def descend() -> optax.GradientTransformationExtraArgs:
    """Turn the decrease of a parameter into the update that is added to it."""
    return per_parameter(_descend)


def keep_gradients() -> optax.GradientTransformation:
    """Leave the parameters unchanged; the state is the last gradients."""

    def init(params: PyTree) -> PyTree:
        return optax.tree.zeros_like(params)

    def update(updates: PyTree, state: PyTree, params: PyTree = None, **_: Any) -> tuple[PyTree, PyTree]:
        gradients = densify(updates)
        return optax.tree.zeros_like(gradients), gradients

    return optax.GradientTransformationExtraArgs(init, update)


# ---------------------------------------------------------------- links after the rule


def add_noise() -> optax.GradientTransformationExtraArgs:
    """Gaussian noise on the parameter, independent of the rate; each parameter draws its own."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, *, hyper: Hyper, seen: Whole = WHOLE, **_: Any
    ) -> tuple[PyTree, PyTree]:
        grads, tree = jax.tree.flatten(densify(updates))
        key = jax.random.wrap_key_data(jnp.asarray(hyper["seed"]), impl="threefry2x32")
        noise = [
            seen.of(jax.random.normal(jax.random.fold_in(key, i), seen.shape(i, g), g.dtype))
            for i, g in enumerate(grads)
        ]
        noisy = [g + jnp.asarray(hyper["noise"], g.dtype) * drawn for g, drawn in zip(grads, noise, strict=True)]
        return jax.tree.unflatten(tree, noisy), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def shrink_l1(strength: float) -> optax.GradientTransformationExtraArgs:
    """The proximal step of ``strength * |w|`` per sample: moves the new parameter towards zero, at most to zero."""

    def rule(g: Array, w: Array, rate: Array, weight: Array, **_: Any) -> tuple[Array]:
        moved = w + g
        return (jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - rate * strength * weight, 0) - w,)

    return per_parameter(rule, every_row=True)


# ---------------------------------------------------------------- half precision


def with_master_weights(inner: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """``inner`` on float32 copies of float16 parameters, so that steps too small for float16 accumulate.

    Where a parameter differs from its copy by more than rounding, it was set by the user, and the copy is replaced.
    """

    def widen(params: PyTree) -> PyTree:
        return jax.tree.map(lambda w: w.astype(jnp.float32) if w.dtype == jnp.float16 else w, params)

    def current(w: Array, master: Array | None) -> Array:
        if master is None:
            return w
        wide = w.astype(jnp.float32)
        return jnp.where(jnp.abs(master - wide) <= jnp.abs(wide) * 2**-10 + 2**-24, master, wide)

    def init(params: PyTree) -> MasterWeights:
        masters = jax.tree.map(lambda w: w.astype(jnp.float32) if w.dtype == jnp.float16 else None, params)
        return MasterWeights(masters, inner.init(widen(params)))

    def update(
        updates: PyTree, state: MasterWeights, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, MasterWeights]:
        masters = jax.tree.map(current, params, state.weights)
        updates, inner_state = inner.update(widen(densify(updates)), state.inner, masters, **extra)
        moved = optax.apply_updates(masters, updates)
        updates = jax.tree.map(lambda w, u, new: u if w.dtype == new.dtype else new - w, params, updates, moved)
        weights = jax.tree.map(lambda w, new: None if w.dtype == new.dtype else new, params, moved)
        return updates, MasterWeights(weights, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)
