"""Loops with the same steps as one loop, in which each operation computes them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from ..._typing import Array, PyTree
from ..plan.parts import Loop
from .loops import ScannedLoop
from .values import Context, Environment


def run_side_by_side(ctx: Context, loops: Sequence[Loop], env: Environment) -> None:
    """Compute the outputs of loops that have the same structure and do not depend on each other.

    A loop that runs in the other direction than the first one gets its inputs in the reverse order.
    """
    scanned = [ScannedLoop.of(ctx, loop, env) for loop in loops]
    resets_state = any(s.resets_state for s in scanned)
    first, *others = [replace(s, resets_state=resets_state) for s in scanned]
    arguments = [_in_direction_of(first, s) for s in (first, *others)]
    if ctx.layouts[first.loop.axis].origin is not None or len(set(map(_shapes, arguments))) > 1:
        for s in scanned:
            s.store(env, s.run(*s.arguments()))
        return
    layout_arrays = arguments[0][1][0]
    weights, invariants, init, xs = zip(*[(w, i, c, x) for w, (_, i), c, x in arguments], strict=True)
    joined = jax.vmap(first.run, in_axes=(0, (None, 0), 0, 1), out_axes=1)
    ys = joined(_stacked(weights), (layout_arrays, _stacked(invariants)), _stacked(init), _stacked(xs, 1))
    for i, s in enumerate((first, *others)):
        s.store(env, [y[::-1, i] if s.loop.reverse != first.loop.reverse else y[:, i] for y in ys])


def _in_direction_of(first: ScannedLoop, scanned: ScannedLoop) -> PyTree:
    """The arguments of a loop, as the steps of the first one take them."""
    weights, invariants, init, (sequences, cells) = scanned.arguments()
    if scanned.loop.reverse == first.loop.reverse:
        return weights, invariants, init, (sequences, cells)
    position, remaining, *others = cells
    return weights, invariants, init, jax.tree.map(lambda x: x[::-1], (sequences, (remaining, position, *others)))


def _shapes(arguments: PyTree) -> tuple[object, ...]:
    leaves, tree = jax.tree.flatten(arguments)
    return tree, *((x.shape, x.dtype) for x in leaves)


def _stacked(trees: Sequence[PyTree], axis: int = 0) -> PyTree:
    def stack(*arrays: Array) -> Array:
        return jnp.stack(arrays, axis)

    return jax.tree.map(stack, *trees)


__all__ = ["run_side_by_side"]
