"""Products in recurrent loops with weights from outside, and what of them can be computed before the loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import jax
import jax.numpy as jnp
from jax import lax

from ..._typing import Array, PyTree
from ...graph.function import Node
from ...graph.variable import Edge, producer
from ..plan.parts import Loop, resolve
from ..xla.platform import lowering
from .nodes import compute_fitting
from .values import Axes, Context, Environment, Traced

RowRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Weight:
    """What a product multiplies with: a weight, or some ranges of its rows, times a scale if there is one."""

    variable: Edge
    axes: Axes
    scale: Edge | None = None
    rows: RowRanges = ()

    def data(self, ctx: Context, invariants: Mapping[Edge, Traced]) -> Array:
        """The weight, scaled, with the ranges of rows one below the other. Shapes: [rows, *out]."""
        weight = ctx.array(invariants[self.variable])
        if self.rows:
            weight = jnp.concatenate([weight[begin:end] for begin, end in self.rows])
        return weight if self.scale is None else weight * invariants[self.scale].data.reshape(()).astype(weight.dtype)


@dataclass(frozen=True)
class Product:
    """A product in a loop: concatenated operands with their weight; and those that are multiplied before the loop."""

    operands: tuple[Edge, ...]
    weight: Weight
    hoisted_operands: tuple[Edge, ...] = ()
    hoisted_weight: Weight | None = None


def products_of(
    loop: Loop, invariants: Mapping[Edge, Traced], sequences: Collection[Edge], simple: bool, masked: Container[Node]
) -> tuple[dict[Node, Product], set[Node]]:
    """The products of a loop, and the nodes that need not be computed, as only products read them.

    A number that scales only operands of products, as a stabilizer's, scales the weights instead: once, not in every
    step, and its gradient is not summed over large arrays in every step. Of concatenated operands, those from outside
    are multiplied before the loop, for all steps at once. Nodes with `masked` operands are computed like any others.
    """
    finder = _ProductFinder(loop, invariants, sequences, simple, masked)
    return {node: finder.product(node) for node in finder.weights}, finder.fused


@dataclass
class _ProductFinder:
    """The nodes of a loop and their readers. `fused`: nodes that have become part of products."""

    loop: Loop
    invariants: Mapping[Edge, Traced]
    sequences: Collection[Edge]
    simple: bool
    masked: Container[Node]
    fused: set[Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.weights = {node: _weight_of(node) for node in self.loop.nodes if self._is_product(node)}
        self.readers: dict[Edge, list[Node]] = {}
        for node in (*self.loop.delays, *self.loop.nodes):
            for v in dict.fromkeys(map(resolve, node.node_inputs)):
                self.readers.setdefault(v, []).append(node)

    def product(self, node: Node) -> Product:
        """A product, with the scale of its operand in the weight, and parts of a concatenated operand hoisted."""
        weight = self.weights[node]
        operand = next(v for v in map(resolve, node.node_inputs) if v is not weight)
        product = Product((operand,), Weight(weight, self.invariants[weight].axes))
        source = producer(operand)
        readers = [] if source is None else self._readers_if_products(source)
        if source is not None and readers and (scaled := _scaled(source, self.invariants)):
            self.fused.add(source)
            operand, scale = scaled
            product = Product((operand,), replace(product.weight, scale=scale))
            source = producer(operand)
        if source is not None and _is_concatenation_of_vectors(source, self.invariants):
            readers = self._readers_if_products(source)
            if readers and all(n.primitive.looks_up_rows(n) for n in readers):
                product = _with_hoisted_operands(product, source, self.sequences)
                if product.hoisted_operands:
                    self.fused.add(source)
        return product

    def _is_product(self, node: Node) -> bool:
        """True for a bilinear node whose weight is the same in each step.

        It may be one for each sequence, as for attention, in a `simple` grid, where each has a row of its own.
        """
        if node.primitive.weight_operand is None or node in self.masked:
            return False
        weight = _weight_of(node)
        if weight not in self.invariants or self.invariants[weight].is_sparse:
            return False
        if self.invariants[weight].axes and not (self.simple and node.primitive.weight_per_sequence):
            return False
        others = [resolve(v) for i, v in enumerate(node.node_inputs) if i != node.primitive.weight_operand]
        return all(v not in self.invariants for v in others) and len(others) == 1

    def _readers_if_products(self, node: Node) -> list[Node]:
        """The products that read a node, scaled or not; none if anything else reads it."""
        if node not in self.loop.nodes or node.node_outputs[0] in self.loop.outputs:
            return []
        products: list[Node] = []
        for reader in self.readers[node.node_outputs[0]]:
            if reader in self.weights:
                products.append(reader)
            elif _scaled(reader, self.invariants) and (below := self._readers_if_products(reader)):
                products += below
            else:
                return []
        return products


def _weight_of(node: Node) -> Edge:
    return resolve(node.node_inputs[node.primitive.weight_operand])


def _scaled(node: Node, invariants: Mapping[Edge, Traced]) -> tuple[Edge, Edge] | None:
    """What a node scales, and the number that it scales it by; None if it computes anything else."""
    if not node.primitive.multiplies:
        return None
    out, operands = node.node_outputs[0], [resolve(v) for v in node.node_inputs]
    scale = next((v for v in operands if v in invariants and not invariants[v].axes), None)
    operand = next((v for v in operands if v not in invariants), None)
    if scale is None or operand is None or set(scale.shape) - {1} or invariants[scale].is_sparse:
        return None
    alike = (operand.shape, operand.dtype) == (out.shape, out.dtype) and scale.dtype == out.dtype
    return (operand, scale) if alike else None


def _is_concatenation_of_vectors(node: Node, invariants: Mapping[Edge, Traced]) -> bool:
    """True if a node concatenates vectors of known sizes, none of which is the same in each step."""
    if not node.primitive.concatenates or len(node.node_outputs[0].shape) != 1:
        return False
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.is_sparse or v in invariants or v.dtype != operands[0].dtype for v in operands):
        return False
    return all(len(v.shape) == 1 and v.shape[0] > 0 for v in operands)


def _with_hoisted_operands(product: Product, concatenation: Node, sequences: Collection[Edge]) -> Product:
    """A product of concatenated vectors, of which those from outside the loop are hoisted."""
    pieces = [resolve(v) for v in concatenation.node_inputs]
    rows = list(pairwise(accumulate((v.shape[0] for v in pieces), initial=0)))
    outside = [i for i, v in enumerate(pieces) if v in sequences]
    inside = [i for i, v in enumerate(pieces) if v not in sequences]
    if not outside or not inside:
        return product

    def weight(places: list[int]) -> Weight:
        return replace(product.weight, rows=tuple(rows[i] for i in places))

    return Product(
        tuple(pieces[i] for i in inside), weight(inside), tuple(pieces[i] for i in outside), weight(outside)
    )


def hoisted_products(
    ctx: Context, products: Mapping[Node, Product], invariants: Mapping[Edge, Traced],
    sequences: Mapping[Edge, Traced],
) -> dict[Edge, Traced]:
    """The products of hoisted operands with their weights, under the names of the products that they are part of."""
    hoisted = {}
    for node, product in products.items():
        if product.hoisted_weight is not None:
            values = [sequences[v] for v in product.hoisted_operands]
            x = replace(values[0], data=jnp.concatenate([v.data for v in values], -1))
            data = apply_weight(ctx, node, product.hoisted_weight, x, product.hoisted_weight.data(ctx, invariants))
            hoisted[node.node_outputs[0]] = Traced(data, x.axes)
    return hoisted


def with_common_operand(products: Mapping[Node, Product]) -> list[tuple[Node, ...]]:
    """The products of a loop in groups, each of which is computed as one, with the weights side by side.

    XLA:GPU joins products of one vector anyway, but copies the parts of the result: a product is separate from its
    readers. In a CPU's programs each is by itself.
    """
    groups: dict[Hashable, list[Node]] = {}
    for node, product in products.items():
        weight = product.weight.variable
        joins = lowering().joined_products and node.primitive.looks_up_rows(node) and weight.shape[-1] > 1
        groups.setdefault((product.operands, weight.dtype) if joins else node, []).append(node)
    return [tuple(group) for group in groups.values()]


def multiply(
    ctx: Context, products: Mapping[Node, Product], env: Environment, w: Array, tap: Array | None
) -> tuple[Array, Array]:
    """Compute products of one operand; returns it, and the products side by side without what was hoisted.

    With a tap, its gradient goes there, and none to the weight.
    """
    node, product = next(iter(products.items()))
    arrays, axes = [ctx.array(env[v]) for v in product.operands], env[product.operands[0]].axes
    x = arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, -1)

    def product_with(x: Array, w: Array) -> Array:
        return apply_weight(ctx, node, product.weight, Traced(x, axes), w)

    y = separate(product_with(x, w), w) if tap is None else _tapped(product_with)(x, w, tap)
    outputs = [n.node_outputs[0] for n in products]
    parts = [y] if len(products) == 1 else lax.split(y, [v.shape[-1] for v in outputs], axis=-1)
    for out, part, each in zip(outputs, parts, products.values(), strict=True):
        env[out] = Traced(part + env[out].data if each.hoisted_operands else part, axes)
    return x, y


def apply_weight(ctx: Context, node: Node, weight: Weight, x: Traced, w: Array) -> Array:
    """The output of a bilinear node for this operand and this weight."""
    operands = [Traced(w, weight.axes) if resolve(v) is weight.variable else x for v in node.node_inputs]
    return ctx.array(compute_fitting(ctx, node, operands)[0])


def _tapped(product: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """A product that gives its weight no gradient: whoever holds the tap computes it from the tap's gradient."""

    @jax.custom_vjp
    def tapped(x: Array, w: Array, tap: Array) -> Array:
        return separate(product(x, w), w)

    def forward(x: Array, w: Array, tap: Array) -> tuple[Array, tuple[Array, Array]]:
        return separate(product(x, w), w), (x, w)

    def backward(residuals: tuple[Array, Array], d_product: Array) -> PyTree:
        x, w = residuals
        return separate(jax.vjp(lambda x: product(x, w), x)[1](d_product)[0], w), None, d_product

    tapped.defvjp(forward, backward)
    return tapped


def separate(product: Array, weight: Array) -> Array:
    """A product with a weight that XLA:GPU does not join with a sum that it is part of.

    A product that adds to another operand needs that in an array of its own, which slices of the inputs of a loop are
    not: it would be copied first. Element-wise kernels read slices in place. Products with vectors, or with a weight
    for each sequence, are kernels of XLA's own, which it may join with others.
    """
    is_library_call = weight.ndim == 2 and min(weight.shape) > 1
    return lax.optimization_barrier(product) if is_library_call and lowering().separate_products else product


__all__ = ["Product", "Weight", "apply_weight", "hoisted_products", "multiply", "products_of", "with_common_operand"]
