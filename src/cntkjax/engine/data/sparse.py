"""Sparse samples inside compiled programs: padded coordinate lists, or bare indices where each sample is one-hot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, Shape
from ..xla.versions import double_precision
from .dimensions import expand_to

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse:
    """Sparse vectors of `width` elements.

    Shapes: indices int32 [*lead, k] with values [*lead, k] (0 in unused entries), or, one-hot, indices int32 [*lead]
            and values None. `shape` is the sample shape, `prod(shape) == width`.
    """

    indices: AnyArray
    values: AnyArray | None
    shape: Shape = field(metadata={"static": True})
    dtype: np.dtype = field(metadata={"static": True})

    @property
    def width(self) -> int:
        """The number of elements of a sample, zeros included."""
        return prod(self.shape)

    @property
    def is_one_hot(self) -> bool:
        """True if each sample has exactly one element, with value 1."""
        return self.values is None

    def astype(self, dtype: type) -> Sparse:
        """The samples with elements of a type."""
        values: AnyArray | None = None if self.values is None else self.values.astype(dtype)
        return Sparse(self.indices, values, self.shape, np.dtype(dtype))

    def with_values(self) -> Sparse:
        """The same samples with values, which can be 0, also where each is one-hot."""
        if self.values is not None:
            return self
        return replace(self, indices=self.indices[..., None], values=jnp.ones((*self.indices.shape, 1), self.dtype))

    def todense(self) -> Array:
        """The samples as an array. Shapes: [*lead, *shape]."""
        with double_precision(self.dtype == np.float64):  # results are converted outside of programs too
            return self._todense()

    def _todense(self) -> Array:
        if self.values is None:
            dense = jax.nn.one_hot(self.indices, self.width, dtype=self.dtype)
        else:
            lead = self.indices.shape[:-1]
            flat = self.indices.reshape(-1, self.indices.shape[-1])
            rows = jnp.arange(flat.shape[0])[:, None]
            dense = jnp.zeros((flat.shape[0], self.width), self.dtype)
            dense = dense.at[rows, flat].add(self.values.reshape(flat.shape)).reshape(*lead, self.width)
        return dense.reshape(*dense.shape[:-1], *self.shape)

    def dot(self, matrix: Array) -> Array:
        """`sample @ matrix`, by gathering rows. Shapes: [*lead, width] x [width, *out] -> [*lead, *out].

        Errors: ValueError if the matrix has another number of rows.
        """
        self._check(len(matrix))
        if self.values is None:
            return matrix[self.indices]
        values = expand_to(self.values, self.values.ndim + matrix.ndim - 1)
        return jnp.sum(matrix[self.indices] * values, axis=self.indices.ndim - 1)

    def pick(self, x: Array) -> Array:
        """`x @ sample` for one sample, by indexing. Shapes: [*map, width] -> [*map].

        Errors: ValueError if x has another number of columns.
        """
        self._check(x.shape[-1])
        if self.values is None:
            return _element(x, self.indices)
        return jnp.sum(x[..., self.indices] * self.values, -1)

    def _check(self, size: int) -> None:
        """Raise a ValueError, as a dense product does, if the other factor has not as many rows as samples elements."""
        if size != self.width:
            raise ValueError(f"{self.width} and {size} elements")


@jax.custom_vjp
def _element(x: Array, index: Array) -> Array:
    """`x[..., index]` with a comparison as its gradient, which XLA fuses with additions, unlike a scatter."""
    return x[..., index]


def _element_forward(x: Array, index: Array) -> tuple[Array, Array]:
    return x[..., index], jnp.arange(x.shape[-1]) == index


_element.defvjp(
    _element_forward, lambda selected, d: (jnp.where(selected, d[..., None], jnp.zeros((), d.dtype)), None)
)


def with_values(x: T | Sparse) -> T | Sparse:
    """The array itself, or `Sparse` samples that can be set to zero."""
    return x.with_values() if isinstance(x, Sparse) else x


def dense(x: T | Sparse) -> T | Array:
    """The array itself, or the dense form of a `Sparse`."""
    return x.todense() if isinstance(x, Sparse) else x
