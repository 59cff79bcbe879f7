"""Learner state divided between devices: each keeps a part of it, and updates that part of the parameters.

Of each gradient a device gets its part of the sum, and all devices gather the updates that come of it. So they need no
more messages than with whole state. Source: Rajbhandari, Rasley, Ruwase and He 2020, "ZeRO: Memory optimizations toward
training trillion parameter models", stage 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array, PyTree
from ..engine.data.dimensions import expand_to
from ..engine.lower.rows import Rows, dense
from ..engine.run.devices import AXIS, Devices, Divided
from .collectives import all_gather, all_reduce, assembled, divided_shape, part, part_shape

if TYPE_CHECKING:
    import optax

    from ..engine.train.update import Gradient


@dataclass(frozen=True)
class Whole:
    """What the links of a learner ask about arrays of which they see the whole. `i`: the number of a parameter."""

    def shape(self, i: int, seen: Array) -> tuple[int, ...]:
        """The shape of the array of which they see this."""
        return seen.shape

    def of(self, array: Array) -> Array:
        """What they see of an array."""
        return array

    def total(self, seen: AnyArray) -> Array:
        """The sum over the whole array, which ends with zeros where it is padded."""
        return jnp.sum(seen)

    def mean(self, i: int, seen: Array) -> Array:
        """The mean over the whole array."""
        return jnp.mean(seen)


@dataclass(frozen=True)
class DividedArrays(Whole):
    """The same of arrays of which they see a part. `shapes`: those of the parameters."""

    shapes: Sequence[tuple[int, ...]]

    def shape(self, i: int, seen: Array) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.shapes[i]

    def of(self, array: Array) -> Array:
        """This device's part."""
        return part(array)

    def total(self, seen: AnyArray) -> Array:
        """The sum over all devices."""
        return lax.psum(jnp.sum(seen), AXIS)

    def mean(self, i: int, seen: Array) -> Array:
        """The mean over all devices, without padding."""
        rows = divided_shape(self.shapes[i], lax.axis_size(AXIS))[0]
        place = lax.axis_index(AXIS) * len(seen) + jnp.arange(len(seen))
        return self.total(jnp.where(expand_to(place < rows, seen.ndim), seen, 0)) / math.prod(self.shapes[i])


WHOLE = Whole()


def on_parts(transform: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """The transformation whose state is `Divided`, in a program over the devices.

    Its gradients are this device's parts of them, or whole `Rows`; its updates are whole.
    """
    import optax  # slow to import

    def update(
        gradients: Sequence[Gradient], state: Divided, values: Sequence[Array], **extra: Any
    ) -> tuple[list[Gradient], Divided]:
        own = [_part_of_rows(g) if isinstance(g, Rows) else g for g in gradients]
        seen = DividedArrays([v.shape for v in values])
        updates, parts = transform.update(own, state.parts, [part(v) for v in values], seen=seen, **extra)
        return _whole(updates, gradients, values), replace(state, parts=parts)

    return optax.GradientTransformationExtraArgs(transform.init, update)


def _whole(updates: Sequence[Gradient], gradients: Sequence[Gradient], values: Sequence[Array]) -> list[Gradient]:
    """The updates of all devices. `gradients`: those that were whole `Rows` say which rows an update is of."""
    parts = {i: u for i, u in enumerate(updates) if not isinstance(u, Rows)}
    rows = {
        i: (g, _in_rows_of(g, u))
        for i, (g, u) in enumerate(zip(gradients, updates, strict=True))
        if isinstance(g, Rows) and isinstance(u, Rows)
    }
    arrays: Sequence[Any] = all_gather(list(parts.values()), [values[i] for i in parts])
    sums = all_reduce([own for _, own in rows.values()])
    whole = dict(zip(parts, arrays, strict=True))
    whole |= {i: replace(g, values=total) for (i, (g, _)), total in zip(rows.items(), sums, strict=True)}
    return [whole[i] for i in range(len(updates))]


# ---- rows


def _part_of_rows(rows: Rows) -> Gradient:
    """The rows that are in this device's part, first; or where that is not made of rows, the part of the array."""
    shape, devices = (rows.height, *rows.values.shape[1:]), lax.axis_size(AXIS)
    if divided_shape(shape, devices) != shape:
        return part(dense(rows))
    height = part_shape(shape, devices)[0]
    place, before = _places(rows, height)
    place = jnp.roll(place, -before)
    is_own = (place >= 0) & (place < height)
    values = jnp.where(expand_to(is_own, rows.values.ndim), jnp.roll(rows.values, -before, 0), 0)
    return Rows(jnp.where(is_own, place, height + jnp.arange(len(place), dtype=place.dtype)), values, height)


def _in_rows_of(whole: Rows, own: Rows) -> Array:
    """The values of a part's rows at the places of those that `_part_of_rows` has got; 0 for others."""
    values = jnp.where(expand_to(own.indices < own.height, own.values.ndim), own.values, 0)
    return jnp.roll(values, _places(whole, own.height)[1], 0)


def _places(rows: Rows, height: int) -> tuple[Array, Array]:
    """The places of rows in this device's part, those outside it below 0 or from `height` on, and how many are below.
    """
    place = jnp.where(rows.indices < rows.height, rows.indices - lax.axis_index(AXIS) * height, height)
    return place, jnp.sum(place < 0)


# ---- state


def divided(
    transform: optax.GradientTransformationExtraArgs, values: Sequence[Array], state: PyTree, devices: Devices
) -> Divided:
    """The state of a learner, divided between devices; the initial one if it is None, which is never whole then."""
    shapes = tuple(leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(transform.init, values)))
    if state is None:
        parts = devices.over(lambda v: transform.init([part(a) for a in v]))
        return Divided(jax.jit(parts)(devices.spread(list(values))), devices, shapes)
    return Divided(jax.jit(devices.over(lambda s: jax.tree.map(part, s)))(devices.spread(state)), devices, shapes)


def gathered(state: Divided) -> PyTree:
    """The whole state, as NumPy arrays; to be called by all workers at the same time."""
    parts, structure = jax.tree.flatten(state.parts)
    arrays = [
        np.asarray(_gathering(state.devices, shape)(array).addressable_data(0))
        for array, shape in zip(parts, state.shapes, strict=True)
    ]
    return jax.tree.unflatten(structure, arrays)


@cache
def _gathering(devices: Devices, shape: tuple[int, ...]) -> Any:
    return jax.jit(devices.over(lambda own: assembled(lax.all_gather(own, AXIS), shape)))


__all__ = ["WHOLE", "DividedArrays", "Whole", "divided", "gathered", "on_parts"]
