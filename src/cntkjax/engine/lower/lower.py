"""From a planned graph to a JAX computation: one node after the other, loops as scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.errors import ShapeError, explain
from ...graph.function import Function
from ...graph.shape import is_known
from ...graph.variable import Variable
from ..data.sparse import Sparse, dense
from ..plan.parts import Loop, Part, inputs_of, outputs_of, resolve
from ..plan.plan import Plan
from .loops import run_ending, run_loop
from .values import Axes, Context, Value, merged

Environment = dict[Variable, Value]


def execute(plan: Plan, ctx: Context, env: Environment) -> Environment:
    """Compute all variables of a plan; `env` holds the leaves and arguments, and is filled."""
    for part in plan.parts:
        run_part(ctx, part, env)
    return env


def run_part(ctx: Context, part: Part, env: Environment) -> None:
    """Compute the outputs of a node or of a loop."""
    if not isinstance(part, Loop):
        run_node(ctx, part, env)
    elif part.fused_parts:
        run_ending(ctx, part, env, run_node, run_part)
    else:
        run_loop(ctx, part, env, run_node)


def execute_after(plan: Plan, ctx: Context, env: Environment, changed: frozenset[Variable]) -> None:
    """Compute anew what depends on variables whose values in `env` were changed, which stay themselves.

    What is not in `env` is computed too.
    """
    touched = set(changed)
    for part in plan.parts:
        made = outputs_of(part)
        if touched.isdisjoint(inputs_of(part)) and all(v in env for v in made):
            continue
        kept = {v: env[v] for v in made if v in changed}
        run_part(ctx, part, env)
        env.update(kept)
        touched.update(made)


def run_node(ctx: Context, node: Function, env: Environment) -> None:
    """Compute the outputs of one primitive node."""
    ctx.node, ctx.env = node, env
    operands = ctx.operands.get(node) or [env[resolve(v)] for v in node.node_inputs]
    with jax.named_scope(node._name or node.primitive.name):
        try:
            results = compute(ctx, node, operands)
        except TypeError as error:
            if all(is_known(v.shape) for v in node.node_inputs):
                raise
            raise ShapeError(explain(
                f"{node.op_name}: dimensions that the data give do not fit: {error}",
                {f"[{i}]": v for i, v in enumerate(node.node_inputs)},
            )) from error
    for variable, result in zip(node.node_outputs, results, strict=True):
        env[variable] = result


def compute(ctx: Context, node: Function, operands: Sequence[Value]) -> list[Value]:
    """The values of a node's outputs."""
    operands = _of_one_type(node, operands)
    if ctx.narrow is not None and _weighs(node, operands):
        made = _compute(ctx, node, [replace(v, data=v.data.astype(ctx.narrow)) for v in operands])
        return [replace(v, data=v.data.astype(o.dtype)) for v, o in zip(made, node.node_outputs, strict=True)]
    return _compute(ctx, node, operands)


def _weighs(node: Function, operands: Sequence[Value]) -> bool:
    """True for a product of dense data with a weight."""
    return node.primitive.autocasts and not all(v.axes for v in operands) and not any(v.is_sparse for v in operands)


def _compute(ctx: Context, node: Function, operands: Sequence[Value]) -> list[Value]:
    primitive, attrs = node.primitive, node.node_attributes
    if primitive.packed:
        made = primitive.lower_packed(ctx, attrs, *operands)
        return list(made) if isinstance(made, (list, tuple)) else [made]
    axes = merged(operands)
    operands = [ctx.to_axes(v, axes) for v in operands]
    if primitive.elementwise:
        return [elementwise(ctx, primitive, attrs, operands, axes)]
    made = map_samples(ctx, lambda *xs: primitive.lower(attrs, *xs), operands, axes, primitive.takes_sparse)
    return [Value(d, axes) for d in (made if isinstance(made, (list, tuple)) else [made])]


def _of_one_type(node: Function, operands: Sequence[Value]) -> Sequence[Value]:
    """Constants take the type of the other operands."""
    own = [resolve(v) for v in node.node_inputs]
    sharing = set(own[node.primitive.dtype_operands])
    types = {v.dtype for v in sharing}
    if len(types) == 1:
        return operands
    dtype = next((v.dtype for v in own if not v.is_constant), None)
    made = []
    for v, x in zip(own, operands, strict=True):
        if v in sharing and v.is_constant and dtype is not None and v.dtype != dtype:
            if np.dtype(v.dtype).itemsize > np.dtype(dtype).itemsize:
                raise ShapeError(explain(
                    f"{node.op_name}: a constant has a wider type than the other operands",
                    {f"[{i}]": w for i, w in enumerate(node.node_inputs)}, "give the constant the type of the others",
                ))
            x = replace(x, data=x.data.astype(dtype))
        made.append(x)
    return made


def map_samples(ctx: Context, f: Any, operands: Sequence[Value], axes: Axes, takes_sparse: bool = False) -> Any:
    """Apply a function of single samples to whole grids; operands without dynamic axes come to it as they are."""
    data = [v.data if takes_sparse and v.is_sparse else ctx.array(v) for v in operands]
    lead = ctx.lead(axes)
    if lead == 0:
        return f(*data)
    if lead == 2:
        data = [jax.tree.map(_flatten, d) if v.axes else d for d, v in zip(data, operands, strict=True)]
    made = jax.vmap(f, in_axes=[0 if v.axes else None for v in operands])(*data)
    if lead == 1:
        return made
    layout = ctx.layout(axes)
    return jax.tree.map(lambda d: d.reshape(layout.time, layout.rows, *d.shape[1:]), made)


def _flatten(d: Any) -> Any:
    return d.reshape(-1, *d.shape[2:])


def elementwise(ctx: Context, primitive: Any, attrs: Any, operands: Sequence[Value], axes: Axes) -> Value:
    """Apply a function that broadcasts like NumPy to whole grids, channels last where all operands allow it."""
    lead = ctx.lead(axes)
    last = _common_channels_last(operands, lead)
    data = [_channels_to_end(v, lead) if last else ctx.array(v) for v in operands]
    rank = max((jnp.ndim(d) - (lead if v.axes else 0) for d, v in zip(data, operands, strict=True)), default=0)
    data = [_pad_rank(d, lead, rank) if v.axes else d for d, v in zip(data, operands, strict=True)]
    return Value(primitive.lower(attrs, *data), axes, channels_last=last)


def _rank(v: Value, lead: int) -> int:
    """The rank of a sample."""
    return len(v.data.shape) if v.is_sparse else jnp.ndim(v.data) - (lead if v.axes else 0)


def _common_channels_last(operands: Sequence[Value], lead: int) -> bool:
    """True if one operand is channels last, and every other is too, or has the same rank, or is one number a sample."""
    rank = next((_rank(v, lead) for v in operands if v.channels_last), None)

    def goes_along(v: Value) -> bool:
        single = _rank(v, lead) == 0 or (not v.axes and jnp.size(v.data) == 1)
        return not v.is_sparse and (_rank(v, lead) == rank or single)

    return rank is not None and all(goes_along(v) for v in operands)


def _channels_to_end(v: Value, lead: int) -> Any:
    return v.data if v.channels_last or _rank(v, lead) < 2 else jnp.moveaxis(v.data, lead if v.axes else 0, -1)


def _pad_rank(d: Any, lead: int, rank: int) -> Any:
    missing = rank - (d.ndim - lead)
    return d.reshape(*d.shape[:lead], *(1,) * missing, *d.shape[lead:]) if missing else d


__all__ = ["Environment", "Sparse", "compute", "dense", "execute", "execute_after", "map_samples", "run_node"]
