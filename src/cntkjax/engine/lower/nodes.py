"""One node: its operands in one type, its computation on samples or on whole grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ..._interrupts import take_interrupts
from ..._typing import Array, PyTree
from ...graph.errors import ShapeError, explain
from ...graph.function import Node
from ...graph.shape import Shape, is_known, shape_text
from ..data.dimensions import expand_to, flat, pad_rank
from ..plan.parts import resolve
from .values import Axes, Context, Environment, Traced, common_axes


def run_node(ctx: Context, node: Node, env: Environment) -> None:
    """Compute the outputs of one primitive node.

    Errors: KeyboardInterrupt if the user wants to stop, since large graphs take minutes.
    """
    take_interrupts()
    ctx.node, ctx.env = node, env
    operands = ctx.operands.get(node) or [env[resolve(v)] for v in node.node_inputs]
    if node in ctx.masks:
        operands = [_masked(ctx, i, v, ctx.masks[node].value) for i, v in enumerate(operands)]
    check_samples(ctx, node, operands)
    with jax.named_scope(node.name or node.primitive.name):
        results = compute_fitting(ctx, node, operands)
    for variable, result in zip(node.node_outputs, results, strict=True):
        env[variable] = result


def compute_fitting(ctx: Context, node: Node, operands: Sequence[Traced]) -> list[Traced]:
    """The results of a node; a ShapeError if sizes that come with the data do not fit each other."""
    try:
        return compute(ctx, node, operands)
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError) or all(is_known(v.shape) for v in node.node_inputs):
            raise
        raise unfit_data(node, [sample_shape(ctx, v) for v in operands]) from error


def check_samples(ctx: Context, node: Node, operands: Sequence[Traced]) -> None:
    """Raise a ShapeError if the operands are not values of the same samples; indices may select others."""
    if ctx.step is not None or node.primitive.index_operand is not None:
        return
    sizes = (
        v.data.shape[0] if len(v.axes) == 1 else ctx.layout(v.axes).size for v in operands if v.axes and not v.is_sparse
    )
    numbers = dict.fromkeys(n for n in sizes if isinstance(n, int))  # others are symbols, for any size
    if len(numbers) > 1:
        raise ShapeError(explain(
            f"{node.op_name}: minibatches of {' and '.join(map(str, numbers))} samples cannot be computed together",
            {f"[{i}]": v for i, v in enumerate(node.node_inputs)},
            "feed as many samples as cntk.to_batch makes of the first axis of its operand",
        ))


def unfit_data(node: Node, shapes: Sequence[Shape]) -> ShapeError:
    """The error of a node whose operands have samples of these shapes, which the data have decided."""
    return ShapeError(explain(
        f"{node.op_name}: dimensions that come with the data do not fit: {' and '.join(map(shape_text, shapes))}",
        {f"[{i}]": v for i, v in enumerate(node.node_inputs)},
        "feed data of the size that is needed here; unpacked sequences are as long as the longest of them",
    ))


def _masked(ctx: Context, place: int, operand: Traced, value: float) -> Traced:
    """An operand of the current node with a value beyond the longest sequence, if it has unpacked steps."""
    data = ctx.array(operand)
    extent = ctx.extent(place, data.ndim)
    if extent is None:
        return operand
    axis, longest = extent
    limit = float(jnp.finfo(data.dtype).max)
    steps = expand_to(jnp.arange(data.shape[axis]), data.ndim - axis)
    return Traced(jnp.where(steps < longest, data, max(-limit, min(value, limit))), operand.axes)


def compute(ctx: Context, node: Node, operands: Sequence[Traced]) -> list[Traced]:
    """The values of a node's outputs."""
    place = node.primitive.index_operand
    if place is not None and (integers := operands[place].integers) is not None:
        operands = [replace(v, data=integers) if i == place else v for i, v in enumerate(operands)]
        return [_of_type(v, o.dtype) for v, o in zip(_compute(ctx, node, operands), node.node_outputs, strict=True)]
    operands = _of_one_type(node, operands)
    if ctx.product_dtype is not None and _is_product_with_weight(node, operands):
        narrow = _compute(ctx, node, [replace(v, data=v.data.astype(ctx.product_dtype)) for v in operands])
        return [replace(v, data=v.data.astype(o.dtype)) for v, o in zip(narrow, node.node_outputs, strict=True)]
    return _compute(ctx, node, operands)


def _of_type(value: Traced, dtype: type | None) -> Traced:
    """The value with elements of a type."""
    return replace(value, data=value.data.astype(dtype))


def _is_product_with_weight(node: Node, operands: Sequence[Traced]) -> bool:
    """True for a product of dense data with a weight, which mixed precision computes in the narrow type."""
    return node.primitive.autocasts and not all(v.axes for v in operands) and not any(v.is_sparse for v in operands)


def _compute(ctx: Context, node: Node, operands: Sequence[Traced]) -> list[Traced]:
    primitive, attrs = node.primitive, node.node_attributes
    if primitive.packed:
        outputs = primitive.lower_packed(ctx, attrs, *operands)
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    axes = common_axes(operands)
    operands = [ctx.to_axes(v, axes) for v in operands]
    if primitive.elementwise:
        return [_elementwise(ctx, node, operands, axes)]
    arrays = map_samples(ctx, lambda *xs: primitive.lower(attrs, *xs), operands, axes, primitive.takes_sparse)
    return [Traced(d, axes) for d in (arrays if isinstance(arrays, (list, tuple)) else [arrays])]


def _of_one_type(node: Node, operands: Sequence[Traced]) -> Sequence[Traced]:
    """The operands, in which constants have taken the type of the others.

    Errors: ShapeError for a constant of a wider type than theirs.
    """
    variables = [resolve(v) for v in node.node_inputs]
    sharing = set(variables[node.primitive.dtype_operands])
    types = {v.dtype for v in sharing}
    if len(types) == 1:
        return operands
    dtype = next((v.dtype for v in variables if not v.is_constant), None)
    cast = []
    for v, x in zip(variables, operands, strict=True):
        if v in sharing and v.is_constant and dtype is not None and v.dtype != dtype:
            if np.dtype(v.dtype).itemsize > np.dtype(dtype).itemsize:
                raise ShapeError(explain(
                    f"{node.op_name}: a constant has a wider type than the other operands",
                    {f"[{i}]": w for i, w in enumerate(node.node_inputs)}, "give the constant the type of the others",
                ))
            x = replace(x, data=x.data.astype(dtype))
        cast.append(x)
    return cast


def map_samples(
    ctx: Context, f: Callable[..., PyTree], operands: Sequence[Traced], axes: Axes, takes_sparse: bool = False
) -> PyTree:
    """Apply a function of single samples to whole grids; operands without dynamic axes are passed unchanged."""
    data = [ctx.data(v) if takes_sparse else ctx.array(v) for v in operands]
    lead = ctx.lead(axes)
    if lead == 0:
        return f(*data)
    if lead == 2:
        data = [flat(d) if v.axes else d for d, v in zip(data, operands, strict=True)]
    outputs = jax.vmap(f, in_axes=[0 if v.axes else None for v in operands])(*data)
    if lead == 1:
        return outputs
    layout = ctx.layout(axes)
    return jax.tree.map(lambda d: d.reshape(layout.time, layout.rows, *d.shape[1:]), outputs)


def _elementwise(ctx: Context, node: Node, operands: Sequence[Traced], axes: Axes) -> Traced:
    """Apply a function that broadcasts like NumPy to whole grids, channels last where all operands allow it."""
    lead = ctx.lead(axes)
    last = _common_channels_last(operands, lead)
    data = [_channels_to_end(v, lead) if last else ctx.array(v) for v in operands]
    rank = max((jnp.ndim(d) - (lead if v.axes else 0) for d, v in zip(data, operands, strict=True)), default=0)
    data = [pad_rank(d, lead, lead + rank) if v.axes else d for d, v in zip(data, operands, strict=True)]
    # The functions of jax.numpy are jitted: each would be traced by itself, and kept by jax for good, for each shape.
    with jax.disable_jit():
        return Traced(node.primitive.lower(node.node_attributes, *data), axes, channels_last=last)


def _rank(v: Traced, lead: int) -> int:
    """The rank of a sample."""
    return len(v.data.shape) if v.is_sparse else jnp.ndim(v.data) - (lead if v.axes else 0)


def sample_shape(ctx: Context, v: Traced) -> Shape:
    """The shape of a sample in this minibatch."""
    return v.data.shape if v.is_sparse else jnp.shape(ctx.array(v))[ctx.lead(v.axes) :]


def _common_channels_last(operands: Sequence[Traced], lead: int) -> bool:
    """True if one operand is channels last, and every other is too, or has the same rank, or is one number a sample."""
    rank = next((_rank(v, lead) for v in operands if v.channels_last), None)

    def allows(v: Traced) -> bool:
        single = _rank(v, lead) == 0 or (not v.axes and jnp.size(v.data) == 1)
        return not v.is_sparse and (_rank(v, lead) == rank or single)

    return rank is not None and all(allows(v) for v in operands)


def _channels_to_end(v: Traced, lead: int) -> Array:
    return v.data if v.channels_last or _rank(v, lead) < 2 else jnp.moveaxis(v.data, lead if v.axes else 0, -1)


__all__ = ["compute", "map_samples", "run_node"]
