"""Gradients as values in a graph, which can be differentiated again; an extension of CNTK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from .._typing import Array
from ..engine.data.dimensions import expand_to
from ..engine.lower.lower import execute_after
from ..engine.lower.values import Context, Traced
from ..engine.plan.parts import Loop, resolve
from ..engine.plan.plan import Plan
from ..engine.run.context import sum_over_samples
from ..graph.errors import explain
from ..graph.function import Node
from ..graph.variable import Edge
from .base import Attrs, Primitive, Spec, primitive


@primitive(name="Gradient", cntk_id=1000)
class Gradient(Primitive):
    """The gradients of the sum of the first operand, over elements and samples, with respect to the others.

    The node has the operands themselves, not a copy of the graph between them, so that clones, blocks and files need no
    special case. When it is lowered, the graph from the others to the first is computed again under ``jax.grad``; XLA
    merges both computations.

    Shapes: those of the others, with their dynamic axes.
    Errors: ValueError if one of the others is sparse, or is computed inside a recurrent loop.
    """

    infers_partially = True
    packed = True
    recomputes_operands = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """The shapes of the operands after the first."""
        return [Spec(v.shape, v.dtype, v.dynamic_axes, needs_gradient=inputs[0].needs_gradient) for v in inputs[1:]]

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> list[Traced]:
        """Lower the graph between the operands again, as a function of all but the first, and differentiate it."""
        node, env = ctx.node, ctx.env
        assert node is not None and env is not None
        loss, *wrt = (resolve(v) for v in node.node_inputs)
        plan = Plan([loss, *wrt])
        _check(ctx, node, plan, wrt, env)
        operands = {v: ctx.canonical(env[v]) for v in wrt}

        def summed(data: Array) -> Array:
            values = env | {v: replace(x, data=d) for (v, x), d in zip(operands.items(), data, strict=True)}
            # Updates are those of the first pass.
            inner = replace(ctx, updates={}, python_calls=[], carried_out={}, layouts=dict(ctx.layouts))
            execute_after(plan, inner, values, frozenset(operands))
            return sum_over_samples(inner, values[loss])

        gradients = dict(zip(operands, jax.grad(summed)([x.data for x in operands.values()]), strict=True))
        return [Traced(_fill_padding(ctx, operands[v], gradients[v]), operands[v].axes) for v in wrt]


def _check(ctx: Context, node: Node, plan: Plan, wrt: Sequence[Edge], env: dict[Edge, Traced]) -> None:
    looped = [v for part in plan.parts if isinstance(part, Loop) for v in wrt if v in part.all_outputs]
    sparse = [v for v in wrt if v in env and env[v].is_sparse]
    in_loop = node.node_outputs if ctx.step is not None else []
    for wrong, reason, fix in (
        (in_loop, "is inside a recurrent loop", "move it out of the loop"),
        (looped, "is computed inside a recurrent loop", "differentiate with respect to inputs of the loop"),
        (sparse, "is sparse", "feed dense data, or differentiate with respect to a dense value computed from it"),
    ):
        for v in wrong:
            raise ValueError(explain(f"gradient: {v!r} {reason}", {"variable": v}, fix))


def _fill_padding(ctx: Context, value: Traced, gradient: Array) -> Array:
    """The gradient with that of the first sample in the padding, which has to hold valid data."""
    if not ctx.has_padding(value.axes):
        return gradient
    mask = ctx.mask(value.axes)
    if ctx.lead(value.axes) == 2:
        layout = ctx.layout(value.axes)
        first = gradient[layout.start[0], layout.row[0]]
    else:
        first = gradient[0]
    return jnp.where(expand_to(mask, gradient.ndim), gradient, first)


__all__ = ["Gradient"]
