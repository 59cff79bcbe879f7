"""Gradients as values in a graph, which may be differentiated again. CNTK has nothing alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ..engine.lower.lower import execute_after
from ..engine.lower.values import Context, Value
from ..engine.plan.parts import Loop, resolve
from ..engine.plan.plan import Plan
from ..engine.run.context import sum_over_samples
from ..graph.errors import explain
from ..graph.function import Function
from ..graph.variable import Variable
from .base import Attrs, Primitive, Spec, primitive


@primitive(name="Gradient", cntk_id=1000)
class Gradient(Primitive):
    """The gradients of the sum of the first operand, over elements and samples, with respect to the others.

    The node has the operands themselves, not a copy of what is between them: clones, blocks and files need to know
    nothing of it. When it is lowered, the part of the graph that leads from the others to the first is computed
    once more inside ``jax.vjp``; XLA sees that it is the same computation, and makes one of both.

    Shapes: those of the others, with their dynamic axes.
    Errors: ValueError if one of the others is sparse, or is computed inside a recurrent loop.
    """

    infers_partially = True
    packed = True
    recomputes_operands = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        return [Spec(v.shape, v.dtype, v.dynamic_axes, needs_gradient=inputs[0].needs_gradient) for v in inputs[1:]]

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Value) -> list[Value]:
        node, env = ctx.node, ctx.env
        assert node is not None and env is not None
        loss, *wrt = (resolve(v) for v in node.node_inputs)
        plan = Plan([loss, *wrt])
        _check(ctx, node, plan, wrt, env)
        given = {v: ctx.canonical(env[v]) for v in wrt}

        def summed(data: Any) -> Any:
            here = env | {v: replace(x, data=d) for (v, x), d in zip(given.items(), data, strict=True)}
            # Its changes of state are dropped: the first computation has made them.
            inner = replace(ctx, updates={}, carried_out={}, layouts=dict(ctx.layouts))
            execute_after(plan, inner, here, frozenset(given))
            return sum_over_samples(inner, here[loss])

        found = dict(zip(given, jax.grad(summed)([x.data for x in given.values()]), strict=True))
        return [Value(_filled(ctx, given[v], found[v]), given[v].axes) for v in wrt]


def _check(ctx: Context, node: Function, plan: Plan, wrt: Sequence[Variable], env: dict[Variable, Value]) -> None:
    looped = [v for part in plan.parts if isinstance(part, Loop) for v in wrt if v in part.all_outputs]
    sparse = [v for v in wrt if v in env and env[v].is_sparse]
    moving = node.node_outputs if ctx.step is not None else []
    for wrong, why, mend in (
        (moving, "stands inside a recurrent loop", "take it out of the loop"),
        (looped, "is computed inside a recurrent loop", "differentiate with respect to what comes from outside it"),
        (sparse, "is sparse", "feed it dense, or differentiate with respect to what is made of it"),
    ):
        for v in wrong:
            raise ValueError(explain(f"gradient: {v!r} {why}", {"variable": v}, mend))


def _filled(ctx: Context, value: Value, gradient: Any) -> Any:
    """The gradient with that of the first sample in the padding: like all padding it has to be such as data are."""
    if not ctx.has_padding(value.axes):
        return gradient
    mask = ctx.mask(value.axes)
    if ctx.lead(value.axes) == 2:
        layout = ctx.layout(value.axes)
        first = gradient[layout.start[0], layout.row[0]]
    else:
        first = gradient[0]
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (gradient.ndim - mask.ndim)), gradient, first)


__all__ = ["Gradient"]
