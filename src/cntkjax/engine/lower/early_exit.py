"""Loops that stop early: generators whose later steps nobody reads (found by `plan/early_exit.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from ..._typing import Array, PyTree
from ..data.dimensions import expand_to
from ..data.layout import Layout
from ..plan.parts import Loop, Part, inputs_of
from .loops import ScannedLoop
from .values import Context, Environment, LayoutArrays, Traced, layouts_as_arguments

RunPart = Callable[[Context, Part, Environment], None]


def run_early_exit_loop(ctx: Context, loop: Loop, env: Environment, run_part: RunPart) -> None:
    """Compute a fused loop, which stops early where no gradient is taken; where one is, its parts one by one."""

    def run_parts(ctx: Context, env: Environment) -> None:
        for part in loop.fused_parts:
            run_part(ctx, part, env)

    if ctx.layouts[loop.axis].origin is not None:  # the next minibatch continues from the last steps
        return run_parts(ctx, env)
    if ctx.forward_only:
        return _run_until_exit(ctx, loop, env)
    inputs = {v: env[v] for v in inputs_of(loop) if v not in loop.all_outputs}
    layout_arrays, with_layouts = layouts_as_arguments(ctx)

    def outputs(
        run: Callable[[Context, Environment], None], layout_arrays: LayoutArrays, data: list[PyTree]
    ) -> list[Array]:
        inner = with_layouts(layout_arrays)
        inner_env = {v: replace(x, data=d) for (v, x), d in zip(inputs.items(), data, strict=True)}
        run(inner, inner_env)
        return [inner.array(inner_env[v]) for v in loop.outputs]

    @jax.custom_vjp
    def run(layout_arrays: LayoutArrays, data: list[PyTree]) -> list[Array]:
        return outputs(lambda ctx, env: _run_until_exit(ctx, loop, env), layout_arrays, data)

    def forward(layout_arrays: LayoutArrays, data: list[PyTree]) -> tuple[list[Array], Callable[..., PyTree]]:
        return jax.vjp(lambda data: outputs(run_parts, layout_arrays, data), data)

    def backward(vjp: Callable[..., PyTree], gradients: list[Array]) -> PyTree:
        return None, *vjp(gradients)

    run.defvjp(forward, backward)
    axes = loop.delays[0].node_outputs[0].dynamic_axes
    values = run(layout_arrays, [x.data for x in inputs.values()])
    env.update({v: Traced(d, axes) for v, d in zip(loop.outputs, values, strict=True)})


def _run_until_exit(ctx: Context, loop: Loop, env: Environment) -> None:
    scanned = ScannedLoop.of(ctx, loop, env)
    weights, invariants, init, xs = scanned.arguments()

    def body(carry: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return scanned.step(weights, invariants, carry, x, None)[:2]

    scanned.store(env, _scan_until_exit(body, init, xs, ctx.layouts[loop.axis]))


def _scan_until_exit(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], init: PyTree, xs: PyTree, layout: Layout
) -> PyTree:
    """The outputs of a scan up to the step from which on no sequence begins or continues; zeros after it.

    A sequence continues while the value that the last delay holds is not 0.
    """
    last_begin = jnp.max(jnp.where(layout.mask & (layout.position == 0), jnp.arange(layout.time)[:, None], 0))

    def at_step(t: Array | int, arrays: PyTree) -> PyTree:
        return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, t, keepdims=False), arrays)

    def continues(state: PyTree) -> Array:
        t, (*_, (flag,)), _ = state
        mask = expand_to(at_step(t, layout.mask), flag.ndim)
        return (t < layout.time) & ((t <= last_begin) | jnp.any(mask & (flag != 0)))

    def step(state: PyTree) -> PyTree:
        t, carry, ys = state
        carry, y = body(carry, at_step(t, xs))
        return t + 1, carry, jax.tree.map(lambda a, new: lax.dynamic_update_index_in_dim(a, new, t, 0), ys, y)

    _, shapes = jax.eval_shape(body, init, at_step(0, xs))
    ys = jax.tree.map(lambda s: jnp.zeros((layout.time, *s.shape), s.dtype), shapes)
    return lax.while_loop(continues, step, (0, init, ys))[2]
