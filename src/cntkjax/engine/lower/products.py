"""Products in recurrent loops with weights that do not move with the loop, and what of them need not wait for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp

from ...graph.function import Function
from ...graph.variable import Variable
from ..plan.parts import Loop, resolve
from .values import Axes, Context, Value

Rows = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Weight:
    """What a product is multiplied by: a weight, or some rows of it, times a number if there is one."""

    variable: Variable
    axes: Axes
    scale: Variable | None = None
    rows: Rows = ()

    def data(self, ctx: Context, fixed: Mapping[Variable, Value]) -> Any:
        """The weight, scaled; its rows one below the other."""
        weight = ctx.array(fixed[self.variable])
        if self.rows:
            weight = jnp.concatenate([weight[begin:end] for begin, end in self.rows])
        return weight if self.scale is None else weight * fixed[self.scale].data.reshape(()).astype(weight.dtype)


@dataclass(frozen=True)
class Product:
    """A product in a loop: its operands, one behind the other, and their weight; and those known before the loop."""

    operands: tuple[Variable, ...]
    weight: Weight
    ahead: tuple[Variable, ...] = ()
    weight_ahead: Weight | None = None


def products_of(
    loop: Loop, fixed: Mapping[Variable, Value], moving: Collection[Variable], simple: bool
) -> tuple[dict[Function, Product], set[Function]]:
    """The products of a loop, and nodes that need not be computed, as nothing but products uses them.

    A number that scales nothing but operands of products, as a stabilizer's, scales the weights instead: once, not in
    every step, and its gradient is not collected from large arrays in every step. Of operands that are joined, those
    from outside are multiplied before the loop, for all steps at once.
    """
    weights = {n: _weight_of(n) for n in loop.nodes if _is_product(n, fixed, simple)}
    users: dict[Variable, list[Function]] = {}
    for node in (*loop.delays, *loop.nodes):
        for v in dict.fromkeys(map(resolve, node.node_inputs)):
            users.setdefault(v, []).append(node)
    folded: set[Function] = set()
    found = {}

    def below(node: Function) -> list[Function]:
        """The products that use a node, scaled or not; none if anything else uses it."""
        if node not in loop.nodes or node.node_outputs[0] in loop.outputs:
            return []
        parts = [[n] if n in weights else below(n) if _scaled(n, fixed) else [] for n in users[node.node_outputs[0]]]
        return [n for part in parts for n in part] if all(parts) else []

    for node, variable in weights.items():
        operand = next(v for v in map(resolve, node.node_inputs) if v is not variable)
        product = Product((operand,), Weight(variable, fixed[variable].axes))
        above = operand._owner
        if above is not None and below(above) and (scaled := _scaled(above, fixed)):
            folded.add(above)
            operand, scale = scaled
            product = Product((operand,), replace(product.weight, scale=scale))
            above = operand._owner
        if above is not None and _is_join_of_vectors(above, fixed):
            used = below(above)
            if used and all(n.primitive.looks_up_rows(n) for n in used):
                product = _parted(product, above, moving)
                folded.update([above] if product.ahead else [])
        found[node] = product
    return found, folded


def _weight_of(node: Function) -> Variable:
    return resolve(node.node_inputs[node.primitive.weight_operand])


def _is_product(node: Function, fixed: Mapping[Variable, Value], simple: bool) -> bool:
    """True for a bilinear node whose weight does not move with the loop.

    It may be one for each sequence, as what attention looks at, in a `simple` grid, where each has a row of its own.
    """
    if node.primitive.weight_operand is None:
        return False
    weight = _weight_of(node)
    if weight not in fixed or fixed[weight].is_sparse:
        return False
    if fixed[weight].axes and not (simple and node.primitive.weight_per_sequence):
        return False
    others = [resolve(v) for i, v in enumerate(node.node_inputs) if i != node.primitive.weight_operand]
    return all(v not in fixed for v in others) and len(others) == 1


def _scaled(node: Function, fixed: Mapping[Variable, Value]) -> tuple[Variable, Variable] | None:
    """What a node scales, and the number that it scales it by."""
    if not node.primitive.multiplies:
        return None
    out, operands = node.node_outputs[0], [resolve(v) for v in node.node_inputs]
    scale = next((v for v in operands if v in fixed and not fixed[v].axes), None)
    operand = next((v for v in operands if v not in fixed), None)
    if scale is None or operand is None or set(scale.shape) - {1} or fixed[scale].is_sparse:
        return None
    alike = (operand.shape, operand.dtype) == (out.shape, out.dtype) and scale.dtype == out.dtype
    return (operand, scale) if alike else None


def _is_join_of_vectors(node: Function, fixed: Mapping[Variable, Value]) -> bool:
    """True for a splice of vectors of known sizes, all of which move with the loop."""
    if not node.primitive.concatenates or len(node.node_outputs[0].shape) != 1:
        return False
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.is_sparse or v in fixed or v.dtype != operands[0].dtype for v in operands):
        return False
    return all(len(v.shape) == 1 and v.shape[0] > 0 for v in operands)


def _parted(product: Product, join: Function, moving: Collection[Variable]) -> Product:
    """A product of joined vectors, parted into what is known before the loop and what is not."""
    pieces = [resolve(v) for v in join.node_inputs]
    rows = list(pairwise(accumulate((v.shape[0] for v in pieces), initial=0)))
    ahead = [i for i, v in enumerate(pieces) if v in moving]
    inside = [i for i, v in enumerate(pieces) if v not in moving]
    if not ahead or not inside:
        return product

    def weight(places: list[int]) -> Weight:
        return replace(product.weight, rows=tuple(rows[i] for i in places))

    return Product(
        tuple(pieces[i] for i in inside), weight(inside), tuple(pieces[i] for i in ahead), weight(ahead)
    )


def multiplied_ahead(
    ctx: Context, products: Mapping[Function, Product], fixed: Mapping[Variable, Value],
    moving: Mapping[Variable, Value],
) -> dict[Variable, Value]:
    """What products make of the operands that are known before the loop, under the names of the products."""
    made = {}
    for node, product in products.items():
        if product.weight_ahead is not None:
            values = [moving[v] for v in product.ahead]
            x = replace(values[0], data=jnp.concatenate([v.data for v in values], -1))
            data = weigh(ctx, node, product.weight_ahead, x, product.weight_ahead.data(ctx, fixed))
            made[node.node_outputs[0]] = Value(data, x.axes)
    return made


def multiply(
    ctx: Context, node: Function, here: dict[Variable, Value], product: Product, w: Any, tap: Any
) -> tuple[Any, Any]:
    """The operand of a product, and the product; its gradient goes to the tap if there is one, none to the weight."""
    arrays, axes = [ctx.array(here[v]) for v in product.operands], here[product.operands[0]].axes
    x = arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, -1)

    def compute(x: Any, w: Any) -> Any:
        return weigh(ctx, node, product.weight, Value(x, axes), w)

    made = compute(x, w) if tap is None else _tapped(compute)(x, w, tap)
    out = node.node_outputs[0]
    here[out] = Value(made + here[out].data if product.ahead else made, axes)
    return x, made


def weigh(ctx: Context, node: Function, weight: Weight, x: Value, w: Any) -> Any:
    """A bilinear node's output for a given operand and weight."""
    from .lower import compute  # computing a node and running a loop need each other

    operands = [Value(w, weight.axes) if resolve(v) is weight.variable else x for v in node.node_inputs]
    return ctx.array(compute(ctx, node, operands)[0])


def _tapped(product: Any) -> Any:
    """A product whose weight gradient is left to whoever collects what arrives at `tap`."""

    @jax.custom_vjp
    def tapped(x: Any, w: Any, tap: Any) -> Any:
        return product(x, w)

    def forward(x: Any, w: Any, tap: Any) -> Any:
        return product(x, w), (x, w)

    def backward(kept: Any, dz: Any) -> Any:
        x, w = kept
        return jax.vjp(lambda x: product(x, w), x)[1](dz)[0], None, dz

    tapped.defvjp(forward, backward)
    return tapped
