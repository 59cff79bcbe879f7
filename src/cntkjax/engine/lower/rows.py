"""Gradients of embeddings: only the rows of a parameter that a minibatch looks up.

A parameter whose every use is a product with sparse data is replaced, for one step, by the few rows that occur, and the
data's indices are renumbered accordingly. What is differentiated is then small, and so is what a learner has to do:
neither depends on the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.function import Function
from ...graph.variable import Leaf, Variable
from ..data.packing import bucket
from ..data.sparse import Sparse
from ..plan.parts import resolve
from ..plan.plan import Plan
from .values import Context, Value


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Some rows of an array whose other rows are zero.

    Shapes: indices int32 [n], ascending, each once; those from `height` on stand for nothing. values [n, *row].
    """

    indices: Any
    values: Any
    height: int = field(metadata={"static": True})

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self.values.dtype

    def take(self, array: Any) -> Any:
        """The same rows of another array [height, *row]: [n, *row]."""
        return array.at[self.indices].get(mode="clip", indices_are_sorted=True)

    def put(self, array: Any, rows: Any) -> Any:
        """The array with other values in these rows."""
        return array.at[self.indices].set(rows, mode="drop", indices_are_sorted=True, unique_indices=True)

    def dense(self) -> Any:
        """[height, *row]."""
        return added(jnp.zeros((self.height, *self.values.shape[1:]), self.dtype), self)

    @classmethod
    def of(cls, array: Any, indices: np.ndarray) -> Rows:
        """These rows of an array; their number is rounded up, so that few programs serve all steps."""
        fill = len(array) + np.arange(bucket(max(len(indices), 1)) - len(indices))  # these stand for nothing
        every = np.concatenate([indices, fill]).astype(np.int32)
        return cls(every, np.asarray(array)[np.minimum(every, len(array) - 1)], len(array))

    def mean(self, x: Any) -> Any:
        """The mean of x [n, *row] over the rows that stand for something."""
        here = (self.indices < self.height).reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.sum(jnp.where(here, x, 0)) / (jnp.sum(here) * (x.size // len(x))).astype(x.dtype)


def dense(gradient: Any) -> Any:
    """A gradient as an array, whatever its form."""
    return gradient.dense() if isinstance(gradient, Rows) else gradient


def added(array: Any, update: Any) -> Any:
    """An array after an update in either form, in its own type."""
    if not isinstance(update, Rows):
        return (array + update).astype(array.dtype)
    values = update.values.astype(array.dtype)
    return array.at[update.indices].add(values, mode="drop", indices_are_sorted=True, unique_indices=True)


def summed(a: Any, b: Any) -> Any:
    """The sum of two gradients of one array, in whatever form they are."""
    if not (isinstance(a, Rows) and isinstance(b, Rows)):
        return dense(a) + dense(b)
    indices, numbers = _distinct(jnp.concatenate([a.indices, b.indices]), a.height)
    values = jnp.zeros((len(indices), *a.values.shape[1:]), a.dtype)
    return Rows(indices, values.at[numbers].add(jnp.concatenate([a.values, b.values])), a.height)


def _distinct(every: Any, height: int) -> tuple[Any, Any]:
    """The indices below `height` that occur, ascending, then some that stand for nothing; and where each one is."""
    size = min(len(every), height + 1)  # the one more is that of unused places
    every = jnp.minimum(every, height)
    unique, numbers = jnp.unique(every, return_inverse=True, size=size, fill_value=height)
    # Each index stands there once, also those that stand for nothing: scatters may then write in any order.
    return jnp.where(unique < height, unique, height + jnp.arange(size, dtype=unique.dtype)), numbers


@dataclass(frozen=True)
class Lookup:
    """What stands for a parameter in one step: its rows that occur, and each product's data renumbered to them."""

    rows: Rows
    products: dict[Function, Value]

    @property
    def values(self) -> Any:
        """The rows that occur, [n, *row]."""
        return self.rows.values

    def of(self, gradient: Any) -> Rows:
        """The gradient of the parameter from that of the rows."""
        return replace(self.rows, values=gradient)

    def substitute(self, ctx: Context, rows: Value) -> None:
        """Let the products compute with these rows."""
        ctx.operands.update({node: [data, rows] for node, data in self.products.items()})


def lookups(plan: Plan, env: dict[Variable, Value], parameters: Iterable[Leaf]) -> dict[Leaf, Lookup]:
    """The parameters among these that are only looked up."""

    def looks_up_sparse(node: Function) -> bool:
        data = env.get(resolve(node.node_inputs[0]))
        return node.primitive.looks_up_rows(node) and data is not None and data.is_sparse

    products = plan.weights_of(looks_up_sparse)
    return {p: _lookup(p, env, products[p]) for p in parameters if p in products}


def _lookup(parameter: Leaf, env: dict[Variable, Value], nodes: list[Function]) -> Lookup:
    height = parameter.shape[0]
    left = {n: env[resolve(n.node_inputs[0])] for n in nodes}
    used = {n: _used(v.data, height) for n, v in left.items()}
    every = jnp.concatenate([u.ravel() for u in used.values()])
    unique, numbers = _distinct(every, height)
    rows = Rows(unique, None, height)
    rows = replace(rows, values=rows.take(env[parameter].data))
    products, at = {}, 0
    for n, value in left.items():
        own = numbers[at : at + used[n].size].reshape(used[n].shape)
        at += used[n].size
        products[n] = replace(value, data=replace(value.data, indices=own, shape=(len(unique),)))
    return Lookup(rows, products)


def _used(data: Sparse, height: int) -> Any:
    """The indices, and `height` in the places that hold none."""
    return data.indices if data.values is None else jnp.where(data.values != 0, data.indices, height)
