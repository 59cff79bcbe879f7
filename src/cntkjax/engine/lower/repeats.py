"""Repeated pieces of a plan as one scan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from ..._typing import Array
from ...graph.variable import Edge, producer
from ..plan.parts import resolve
from ..plan.repeats import Repeat
from ..xla.materialize import stores_values, storing_values
from ..xla.platform import lowering
from .nodes import run_node
from .values import Context, Environment, Traced, layouts_as_arguments

_MOST_ALONE = 2  # pieces at the beginning that are computed by themselves


class _Unlike(Exception):
    """The pieces compute values of other forms: each is compiled by itself."""


def run_repeat(ctx: Context, repeat: Repeat, env: Environment) -> None:
    """Compute the outputs of repeated pieces.

    The first ones are computed by themselves as long as what is carried has another form than what they compute, as
    where a state begins as a constant.
    """
    for node in repeat.apart:
        run_node(ctx, node, env)
    for i, piece in enumerate(repeat.pieces):
        with suppress(_Unlike):
            _run_from(ctx, repeat, i, env)
            return
        for node in piece:
            run_node(ctx, node, env)


def _run_from(ctx: Context, repeat: Repeat, begin: int, env: Environment) -> None:
    """Compute the pieces from one on, by its nodes.

    Errors: _Unlike if their values have different forms.
    """
    nodes = repeat.pieces[begin]
    if begin > _MOST_ALONE or any(node in ctx.operands for piece in repeat.pieces for node in piece):
        raise _Unlike
    entering = [repeat.variable(begin - 1, output) for output in repeat.carried] if begin else repeat.initial
    before = [env[v] for v in entering]
    own = [_stacked(ctx, variables[begin:], env) for variables in repeat.own]
    inside = {v for node in nodes for v in node.node_outputs}
    read = dict.fromkeys(resolve(v) for node in nodes for v in node.node_inputs)
    shared = {v: env[v] for v in read if v not in inside and v in env}
    forms: list[Traced] = []
    layouts, with_layouts = layouts_as_arguments(ctx)

    @storing_values(False)
    def step(carry: list[Array], arrays: list[Array]) -> tuple[list[Array], list[Array]]:
        # New layouts, as those of the program would keep arrays of this trace.
        inner = replace(with_layouts(jax.tree.map(lambda x: x, layouts)), updates={}, carried_out={})
        local = dict(shared)
        for v, value, data in zip(entering, before, carry, strict=True):
            local[v] = replace(value, data=data)
        for variables, value, data in zip(repeat.own, own, arrays, strict=True):
            local[variables[begin]] = replace(value, data=data)
        for node in nodes:
            run_node(inner, node, local)
        after = [local[repeat.variable(begin, output)] for output in repeat.carried]
        if list(map(_form, after)) != list(map(_form, before)):
            raise _Unlike
        forms[:] = [local[repeat.variable(begin, output)] for output in repeat.outputs]
        if any(value.is_sparse for value in forms):
            raise _Unlike
        return [value.data for value in after], [value.data for value in forms]

    arrays = [value.data for value in own]
    last, ys = lax.scan(step, [value.data for value in before], arrays, len(repeat.pieces) - begin)
    for output, value, data in zip(repeat.outputs, forms, _with_whole_gradients(ys), strict=True):
        for i in range(begin, len(repeat.pieces)):
            env[repeat.variable(i, output)] = replace(value, data=data[i - begin])
    for output, value, data in zip(repeat.carried, before, last, strict=True):
        env[repeat.variable(-1, output)] = replace(value, data=data)


@jax.custom_vjp
def _with_whole_gradients(arrays: list[Array]) -> list[Array]:
    """The same arrays, with gradients of zeros if the loss does not depend on them: jax (0.10) cannot do without, for
    what a scan returns of each step."""
    return arrays


_with_whole_gradients.defvjp(lambda arrays: (arrays, None), lambda _, gradients: (gradients,))


def _stacked(ctx: Context, variables: Sequence[Edge], env: Environment) -> Traced:
    """The values of pieces. Shapes: that of each, with the pieces as the first axis."""
    values = [env[v] for v in variables]
    if len(set(map(_form, values))) > 1:
        raise _Unlike
    slices = _slices_of_one(ctx, variables, env)
    return replace(values[0], data=_joined([v.data for v in values]) if slices is None else slices)


def _joined(arrays: Sequence[Array]) -> Array:
    hides_places = lowering().hidden_places and stores_values() and jnp.issubdtype(arrays[0].dtype, jnp.floating)
    return _stack(arrays) if hides_places else jnp.stack(arrays)


@jax.custom_vjp
def _stack(arrays: Sequence[Array]) -> Array:
    return jnp.stack(arrays)


def _stack_forward(arrays: Sequence[Array]) -> tuple[Array, None]:
    return _stack(arrays), None


def _stack_backward(_: None, gradient: Array) -> tuple[list[Array]]:
    """The gradient of each, from a place that XLA does not know.

    So the kernels that read them, as those that update parameters of one shape, are equal, and compiled once.
    """
    places = lax.optimization_barrier([jnp.asarray(i, jnp.uint32) for i in range(len(gradient))])
    return ([lax.dynamic_index_in_dim(gradient, i, keepdims=False) for i in places],)


_stack.defvjp(_stack_forward, _stack_backward)


def _slices_of_one(ctx: Context, variables: Sequence[Edge], env: Environment) -> Array | None:
    """The same where they are slices of one value, side by side in their order: XLA compiles many slices slowly."""
    nodes = [producer(v) for v in variables]
    slices = [None if n is None else n.primitive.static_slice(n) for n in nodes]
    first, source = slices[0], None if nodes[0] is None else resolve(nodes[0].node_inputs[0])
    if first is None or source not in env or env[source].is_sparse:
        return None
    width = variables[0].shape[first.axis]
    expected = [first._replace(begin=first.begin + i * width) for i in range(len(slices))]
    if first.stride != 1 or slices != expected or any(resolve(n.node_inputs[0]) is not source for n in nodes if n):
        return None
    x = ctx.array(env[source])
    axis = x.ndim + first.axis
    part = lax.slice_in_dim(x, first.begin, first.begin + width * len(slices), axis=axis)
    return jnp.moveaxis(part.reshape(*x.shape[:axis], len(slices), width, *x.shape[axis + 1 :]), axis, 0)


def _form(value: Traced) -> object:
    """What is equal for values that a scan can carry."""
    if value.is_sparse or value.integers is not None:
        raise _Unlike
    return value.axes, value.channels_last, jnp.shape(value.data), jnp.result_type(value.data)


__all__ = ["run_repeat"]
