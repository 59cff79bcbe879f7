"""Recurrent loops as scans.

Only what is on the cycle goes inside: operands from outside are computed before the loop for all steps at once.
Sequence starts select the initial state, so a row may hold several sequences. The gradient of a weight that multiplies
inside the loop is one large product after the backward loop, not an accumulation in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...graph.function import Function
from ...graph.shape import is_known
from ...graph.variable import Variable
from ..data.layout import Layout
from ..plan.parts import Loop, Part, inputs_of, resolve
from .carry import entering, leave
from .products import multiplied_ahead, multiply, products_of, weigh
from .scans import scan
from .tilings import tilings_of
from .values import Axes, Context, Step, Value

Environment = dict[Variable, Value]
RunNode = Callable[[Context, Function, Environment], None]
RunPart = Callable[[Context, Part, Environment], None]


def run_ending(ctx: Context, loop: Loop, env: Environment, run_node: RunNode, run_part: RunPart) -> None:
    """Compute a merged loop, which stops early where no gradient is taken; where one is, its parts one by one."""

    def apart(ctx: Context, env: Environment) -> None:
        for part in loop.fused_parts:
            run_part(ctx, part, env)

    if ctx.layouts[loop.axis].origin is not None:  # the next minibatch goes on with what the last steps made
        return apart(ctx, env)
    given = {v: env[v] for v in inputs_of(loop) if v not in loop.all_outputs}
    placed, where = _places(ctx)

    def made(run: Callable[[Context, Environment], None], where: Any, data: Any) -> Any:
        inner = placed(where)
        here = {v: replace(x, data=d) for (v, x), d in zip(given.items(), data, strict=True)}
        run(inner, here)
        return [inner.array(here[v]) for v in loop.outputs]

    @jax.custom_vjp
    def run(where: Any, data: Any) -> Any:
        return made(lambda ctx, env: run_loop(ctx, loop, env, run_node, until_ended=True), where, data)

    def forward(where: Any, data: Any) -> Any:
        return jax.vjp(lambda data: made(apart, where, data), data)

    def backward(back: Any, gradient: Any) -> Any:
        return None, *back(gradient)

    run.defvjp(forward, backward)
    axes = loop.delays[0].node_outputs[0].dynamic_axes
    found = run(where, [x.data for x in given.values()])
    env.update({v: Value(d, axes) for v, d in zip(loop.outputs, found, strict=True)})


def _places(ctx: Context) -> tuple[Callable[[Any], Context], Any]:
    """Where samples stand, as arguments for functions with a gradient of their own, and a context made of these again.

    Such a function is traced later once more, and must not hold on to arrays of the trace in which it was made.
    """
    known = list(ctx.layouts)

    def placed(where: Any) -> Context:
        layouts, batch = where
        return replace(ctx, layouts=dict(zip(known, layouts, strict=True)), batch=batch)

    return placed, (list(ctx.layouts.values()), ctx.batch)


def run_loop(ctx: Context, loop: Loop, env: Environment, run_node: RunNode, until_ended: bool = False) -> None:
    """Compute all that is in a loop, for all steps; or `until_ended`, without gradients, for as long as one goes on."""
    layout = ctx.layouts[loop.axis]
    axes = loop.delays[0].node_outputs[0].dynamic_axes
    starts = {delay: resolve(delay.node_inputs[1]) for delay in loop.delays}
    # Initial states that are a sequence stand under the name of the delayed value until that is known.
    sequences = {d: v for d, v in starts.items() if v in env and ctx.sequence_axis(env[v].axes) is not None}
    starts |= {delay: delay.node_outputs[0] for delay in sequences}
    used = [resolve(v) for n in (*loop.delays, *loop.nodes) for v in n.node_inputs[: 1 if n in sequences else None]]
    outside = dict.fromkeys(v for v in used if v not in loop.all_outputs)
    # One value a sequence is not spread over the steps: it may be all that an attention looks at. Initial states are.
    states = set(starts.values())
    fixed = {v: env[v] for v in outside if len(env[v].axes) < (1 if v in states else 2)}
    moving = {v: ctx.to_axes(ctx.canonical(env[v]), axes) for v in outside if v not in fixed} | {
        starts[d]: initial_states(ctx, ctx.canonical(env[v]), axes, _offset(d), loop.reverse)
        for d, v in sequences.items()
    }
    products, folded = products_of(loop, fixed, moving, layout.simple)
    # With a vector XLA reads all operands again, and slowly: better in each step, where they are at hand.
    tapped = [n for n, p in products.items() if p.weight.variable.shape[-1:] != (1,)]
    weights = list(dict.fromkeys(p.weight for p in products.values()))
    computed = [n for n in loop.nodes if n not in products and n not in folded]
    read = {*starts.values(), *(resolve(v) for n in (*loop.delays, *computed) for v in n.node_inputs)}
    read.update(v for p in products.values() for v in p.operands)
    others = {v: ctx.array(x) for v, x in fixed.items() if v in read}
    ahead = multiplied_ahead(ctx, products, fixed, moving)
    moving = {v: x for v, x in moving.items() if v in read} | ahead
    tilings = tilings_of(loop.nodes)
    anew = layout.origin is not None or not (layout.simple and (layout.full or not loop.reverse))
    anew = anew or any(_offset(d) > 1 for d in sequences)  # each of the first steps begins with another state
    wanted = loop.outputs
    if layout.origin is not None:
        wanted = [*wanted, *(resolve(d.node_inputs[0]) for d in loop.delays)]
    placed, where = _places(ctx)

    def step(weight_data: Any, given: Any, carry: Any, now: Any, taps: Any) -> tuple[Any, Any, Any]:
        where, other_data = given
        moving_now, (position, remaining, seq, mask, time) = now
        ctx = placed(where)
        layout = ctx.layouts[loop.axis]
        inner = Context(
            ctx.training, ctx.batch, ctx.layouts, ctx.stream_of, narrow=ctx.narrow,
            step=Step(loop.axis, seq, position, remaining, mask, time),
        )
        here = {v: Value(d, fixed[v].axes) for v, d in zip(others, other_data, strict=True)}
        here |= {v: Value(d, axes) for v, d in zip(moving, moving_now, strict=True)}
        far = remaining if loop.reverse else position
        for delay, buffer in zip(loop.delays, carry, strict=True):
            old = buffer[0]
            if anew:
                initial = here[starts[delay]].data.astype(old.dtype)
                initial = entering(layout, ctx.carried.get(delay), _offset(delay), seq, position, initial)
                begins = (far < _offset(delay)).reshape(-1, *(1,) * (old.ndim - 1))
                old = jnp.where(begins, initial, old)
            here[delay.node_outputs[0]] = Value(old, axes)
        met: list[Any] = []
        for node in loop.nodes:
            if node in products:
                product = products[node]
                tap = None if taps is None or node not in tapped else taps[len(met)]
                pair = multiply(inner, node, here, product, weight_data[weights.index(product.weight)], tap)
                met += [pair] if node in tapped else []
            elif node in tilings:
                if node.node_outputs[0] not in here:
                    here.update(tilings[node].split(inner, here))
            elif node not in folded:
                run_node(inner, node, here)
        if inner.updates:
            raise ValueError(f"a value cannot be assigned inside a recurrent loop: {next(iter(inner.updates))!r}")
        after = [inner.array(here[resolve(d.node_inputs[0])]) for d in loop.delays]
        carry = tuple(
            a[None].astype(b.dtype) if b.shape[0] == 1 else jnp.concatenate([b[1:], a[None]])
            for a, b in zip(after, carry, strict=True)
        )
        return carry, [inner.array(here[v]) for v in wanted], met

    def collect(weight_data: Any, operands: Any, gradients: Any) -> list[Any]:
        found = [jnp.zeros_like(w) for w in weight_data]
        for node, x, dz in zip(tapped, operands, gradients, strict=True):
            weight = products[node].weight
            at = weights.index(weight)
            whole = partial(weigh, ctx, node, weight, Value(x, node.node_outputs[0].dynamic_axes))
            found[at] += jax.vjp(whole, weight_data[at])[1](dz)[0]
        return found

    moving_data = [v.data for v in moving.values()]
    first = tuple(
        _first(delay, start, layout.rows, others, dict(zip(moving, moving_data, strict=True)), loop.reverse, anew)
        for delay, start in starts.items()
    )
    scaled = [w.data(ctx, fixed) for w in weights]
    given = (where, list(others.values()))
    cells = (layout.position, layout.remaining, layout.seq, layout.mask, jnp.arange(layout.time))
    if until_ended:
        def body(carry: Any, now: Any) -> Any:
            return step(scaled, given, carry, now, None)[:2]

        made = _until_ended(body, first, (moving_data, cells), layout)
    else:
        made = scan(step, scaled, given, first, (moving_data, cells), collect, loop.reverse)
    for v, d in zip(wanted, made, strict=True):
        env[v] = Value(d, axes)
    for delay in loop.delays if layout.origin is not None else ():
        start = starts[delay]
        leave(ctx, delay, env[resolve(delay.node_inputs[0])].data, moving.get(start) or fixed[start])


def _until_ended(body: Any, first: Any, steps: Any, layout: Layout) -> Any:
    """What a scan makes, up to the step from which on no sequence begins or goes on; behind it zeros.

    A sequence goes on while the value that the last delay holds is not 0.
    """
    last_begin = jnp.max(jnp.where(layout.mask & (layout.position == 0), jnp.arange(layout.time)[:, None], 0))

    def at(t: Any, data: Any) -> Any:
        return jax.tree.map(lambda d: lax.dynamic_index_in_dim(d, t, keepdims=False), data)

    def goes_on(state: Any) -> Any:
        t, (*_, (gate,)), _ = state
        here = at(t, layout.mask).reshape(-1, *(1,) * (gate.ndim - 1))
        return (t < layout.time) & ((t <= last_begin) | jnp.any(here & (gate != 0)))

    def step(state: Any) -> Any:
        t, carry, made = state
        carry, now = body(carry, at(t, steps))
        return t + 1, carry, jax.tree.map(lambda d, n: lax.dynamic_update_index_in_dim(d, n, t, 0), made, now)

    _, shapes = jax.eval_shape(body, first, at(0, steps))
    made = jax.tree.map(lambda s: jnp.zeros((layout.time, *s.shape), s.dtype), shapes)
    return lax.while_loop(goes_on, step, (0, first, made))[2]


def initial_states(ctx: Context, initial: Value, axes: Axes, offset: int, ahead: bool) -> Value:
    """Initial states at the steps where they are looked at: the last (looking ahead: first) `offset` of a sequence."""
    if ctx.sequence_axis(initial.axes) is None:
        return ctx.to_axes(initial, axes)
    given, layout = ctx.layout(initial.axes), ctx.layout(axes)
    length = given.length[layout.seq]
    step = offset - 1 - layout.remaining if ahead else length - offset + layout.position
    cells = (given.start[layout.seq] + jnp.clip(step, 0, length - 1)) * given.rows + given.row[layout.seq]
    data = ctx.array(initial)
    return Value(data.reshape(-1, *data.shape[2:])[cells], axes)


def _offset(delay: Function) -> int:
    return delay.node_attributes["offset"]


def _first(
    delay: Function, initial: Variable, rows: int, still: dict[Variable, Any], moving: dict[Variable, Any],
    backwards: bool, anew: bool,
) -> Any:
    """The buffer before the first step: the initial state, or zeros where every sequence selects its own."""
    out = delay.node_outputs[0]
    sample = out.shape
    if not is_known(sample):
        free = [i for i, d in enumerate(sample) if d < 0]
        like = next(
            (
                d.shape[2:] for v, d in moving.items()
                if len(v.shape) == len(sample) and all(v.shape[i] == sample[i] for i in free)
            ), None,
        )
        if like is None:
            raise ValueError(f"the state of a loop, {out!r}, has a free dimension that no input of the loop gives")
        sample = tuple(like[i] if i in free else d for i, d in enumerate(sample))
    shape = (_offset(delay), rows, *sample)
    if anew:
        return jnp.zeros(shape, out.dtype)
    if initial in still:
        return jnp.broadcast_to(still[initial], shape).astype(out.dtype)
    ends = moving[initial][-1 if backwards else 0]
    ends = ends.reshape(rows, *(1,) * (len(sample) + 1 - ends.ndim), *ends.shape[1:])
    return jnp.broadcast_to(ends, shape).astype(out.dtype)
