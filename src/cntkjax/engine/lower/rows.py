"""Gradients of embeddings: only the rows of a parameter that a minibatch looks up.

A parameter that is used in products with sparse data only is replaced, for one step, by the few rows that occur, and
the indices of the data are renumbered accordingly. The gradient is then small, and so is the work of the learner:
neither depends on the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array
from ...graph.function import Node
from ...graph.variable import Edge, Leaf, producer
from ..data.dimensions import expand_to
from ..data.packing import bucket
from ..data.sparse import Sparse
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..xla.platform import lowering
from .values import Context, Traced


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Some rows of an array whose other rows are zero.

    Shapes: indices int32 [n], ascending, each once; those from `height` on are padding. values [n, *row].
    """

    indices: AnyArray
    values: AnyArray
    height: int = field(metadata={"static": True})

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.values.dtype

    def take(self, array: Array) -> Array:
        """The same rows of another array. Shapes: [height, *row] -> [n, *row]."""
        return array.at[self.indices].get(mode="clip", indices_are_sorted=True)

    def put(self, array: Array, rows: Array) -> Array:
        """The array with other values in these rows. Shapes: [height, *row], [n, *row] -> [height, *row]."""
        return array.at[self.indices].set(rows, mode="drop", indices_are_sorted=True, unique_indices=True)

    def dense(self) -> Array:
        """The whole array. Shapes: [height, *row]."""
        return apply_update(jnp.zeros((self.height, *self.values.shape[1:]), self.dtype), self)

    @classmethod
    def occurring(cls, array: Array, indices: Array) -> Rows:
        """The rows of an array whose indices occur, in any order and number.

        Shapes: array [height, *row]; indices int32 [n], from `height` on padding.
        """
        unique, _ = _distinct(jnp.minimum(indices, len(array)), len(array))
        return cls(unique, array.at[unique].get(mode="fill", fill_value=0, indices_are_sorted=True), len(array))

    @classmethod
    def of(cls, array: AnyArray, indices: np.ndarray) -> Rows:
        """These rows of an array. Padding rounds their number up, so that few programs serve all steps.

        Shapes: array [height, *row]; indices int [rows], ascending, each once.
        """
        padding = len(array) + np.arange(bucket(max(len(indices), 1)) - len(indices))
        padded = np.concatenate([indices, padding]).astype(np.int32)
        return cls(padded, np.asarray(array)[np.minimum(padded, len(array) - 1)], len(array))

    def mean(self, x: Array, total: Callable[[AnyArray], Array] = jnp.sum) -> Array:
        """The mean of values for these rows, padding left out. Shapes: [n, *row] -> scalar.

        `total`: sums an array, also over other devices, where these are only some of the rows.
        """
        is_row = expand_to(self.indices < self.height, x.ndim)
        return total(jnp.where(is_row, x, 0)) / (total(is_row) * (x.size // len(x))).astype(x.dtype)


def dense(gradient: Array | Rows) -> Array:
    """A gradient as an array, whatever its form."""
    return gradient.dense() if isinstance(gradient, Rows) else gradient


def apply_update(array: Array, update: Array | Rows) -> Array:
    """The sum of an array and an update in either form, in the type of the array."""
    if not isinstance(update, Rows):
        return (array + update).astype(array.dtype)
    values = update.values.astype(array.dtype)
    return array.at[update.indices].add(values, mode="drop", indices_are_sorted=True, unique_indices=True)


def add_gradients(a: Array | Rows, b: Array | Rows) -> Array | Rows:
    """The sum of two gradients of one array, in either form."""
    if not (isinstance(a, Rows) and isinstance(b, Rows)):
        return dense(a) + dense(b)
    return sum_rows(jnp.concatenate([a.indices, b.indices]), jnp.concatenate([a.values, b.values]), a.height)


def sum_rows(indices: Array, values: Array, height: int) -> Rows:
    """The sum of rows, of which several may have the same index.

    Shapes: indices int32 [n], from `height` on padding; values [n, *row].
    """
    indices, numbers = _distinct(jnp.minimum(indices, height), height)
    return Rows(indices, jnp.zeros((len(indices), *values.shape[1:]), values.dtype).at[numbers].add(values), height)


def _distinct(indices: Array, height: int) -> tuple[Array, Array]:
    """The indices below `height` that occur, ascending, then padding; and the place of each index among them.

    Shapes: indices int32 [n], at most `height`, the one of unused entries -> int32 [min(n, height + 1)], int32 [n].
    """
    size = min(len(indices), height + 1)
    if len(indices) <= lowering().compared_indices:
        unique, numbers = _distinct_by_comparison(indices, height, size)
    else:
        unique, numbers = jnp.unique(indices, return_inverse=True, size=size, fill_value=height)
    # Each index occurs once, also in the padding: scatters may then write in any order.
    return jnp.where(unique < height, unique, height + jnp.arange(size, dtype=unique.dtype)), numbers


def _distinct_by_comparison(indices: Array, fill: int, size: int) -> tuple[Array, Array]:
    """What `jnp.unique` gives, by comparing all pairs: three reductions. Shapes: int32 [n] -> int32 [size], int32 [n].
    """
    before = jnp.tri(len(indices), k=-1, dtype=bool)  # [i, j]: whether j is before i
    is_first = ~jnp.any(before & (indices[:, None] == indices), axis=1)
    numbers = jnp.sum(is_first & (indices < indices[:, None]), axis=1, dtype=jnp.int32)
    is_place = jnp.arange(size, dtype=jnp.int32)[:, None] == numbers
    return jnp.min(jnp.where(is_place, indices, fill), axis=1), numbers


@dataclass(frozen=True)
class Lookup:
    """The replacement of a parameter in one step: its rows that occur, and the renumbered data of each product."""

    rows: Rows
    products: dict[Node, Traced]

    @property
    def values(self) -> AnyArray:
        """The rows that occur. Shapes: [n, *row]."""
        return self.rows.values

    def parameter_gradient(self, gradient: Array) -> Rows:
        """The gradient of the parameter from that of the rows. Shapes: [n, *row]."""
        return replace(self.rows, values=gradient)

    def substitute(self, ctx: Context, rows: Traced) -> None:
        """Make the products compute with these rows."""
        ctx.operands.update({node: [data, rows] for node, data in self.products.items()})


def lookups(plan: Plan, env: dict[Edge, Traced], parameters: Iterable[Leaf]) -> dict[Leaf, Lookup]:
    """The lookups of those of the parameters that are only looked up."""

    def looks_up_sparse(node: Node) -> bool:
        data = env.get(resolve(node.node_inputs[0]))
        return node.primitive.looks_up_rows(node) and data is not None and data.is_sparse

    products = plan.weights_of(looks_up_sparse)
    return {p: _lookup(p, env, products[p]) for p in parameters if p in products}


def _lookup(parameter: Leaf, env: dict[Edge, Traced], nodes: list[Node]) -> Lookup:
    height = parameter.shape[0]
    sparse = {n: env[resolve(n.node_inputs[0])] for n in nodes}
    indices = {n: _indices(v.data) for n, v in sparse.items()}
    unique, numbers = _distinct(jnp.concatenate([i.ravel() for i in indices.values()]), height)
    table = env[parameter].data
    rows = Rows(unique, table, height)
    rows = replace(rows, values=rows.take(table))
    products, begin = {}, 0
    for n, value in sparse.items():
        end = begin + indices[n].size
        renumbered = numbers[begin:end].reshape(indices[n].shape)
        begin = end
        products[n] = replace(value, data=replace(value.data, indices=renumbered, shape=(len(unique),)))
    return Lookup(rows, products)


def computed_rows(
    plan: Plan, ctx: Context, env: dict[Edge, Traced], parameters: Iterable[Leaf]
) -> list[Array | None]:
    """As `lookups`, where that is too early: for data that the program computes, as random samples, and for matrices,
    and where the parameter is read as a whole, too, but no gradient comes from there.

    Indices, in any order and number, of the rows that occur of each parameter; None where not only sparse data read it.
    `env` is what the forward pass has left there. Such a gradient is computed as an array, but applied by rows, which
    differs from applying it as a whole where learners have momentum. As in CNTK, reshaped sparse data do not count.
    """

    def reads_rows(node: Node) -> bool:
        source = resolve(node.node_inputs[0])
        data, owner = env.get(source), producer(source)
        is_reshaped = owner is not None and owner.primitive.takes_sparse
        return data is not None and data.is_sparse and not is_reshaped and node.primitive.gathers_rows(node)

    def indices_of(node: Node) -> Array:
        """Those of samples, and the size of the axis in padding."""
        value = env[resolve(node.node_inputs[0])]
        indices = _indices(value.data)
        return jnp.where(expand_to(ctx.mask(value.axes), indices.ndim), indices, value.data.shape[-1]).ravel()

    products = plan.weights_of(reads_rows, lambda node: node.primitive.stops_gradient(node))
    indices = {n: indices_of(n) for nodes in products.values() for n in nodes}
    return [jnp.concatenate([indices[n] for n in products[p]]) if p in products else None for p in parameters]


def _indices(data: Sparse) -> AnyArray:
    """The place on the last axis of each element of sparse samples, and its size in unused entries."""
    size = data.shape[-1]
    indices = data.indices if len(data.shape) == 1 else data.indices % size
    return indices if data.values is None else jnp.where(data.values != 0, indices, size)


__all__ = ["Lookup", "Rows", "add_gradients", "apply_update", "computed_rows", "dense", "lookups", "sum_rows"]
