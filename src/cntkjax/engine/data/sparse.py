"""Sparse samples inside compiled programs: padded coordinate lists, or bare indices where each sample is one-hot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse:
    """Sparse vectors of `width` elements.

    Shapes: indices int32 [*lead, k] with values [*lead, k] (unused places have value 0), or, one-hot, indices int32
    [*lead] and values None. `shape` is the sample shape, `prod(shape) == width`.
    """

    indices: Any
    values: Any
    shape: tuple[int, ...] = field(metadata={"static": True})
    dtype: Any = field(metadata={"static": True})

    @property
    def width(self) -> int:
        """Number of elements of a sample, zeros included."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def is_one_hot(self) -> bool:
        """True if each sample has exactly one element, with value 1."""
        return self.values is None

    def todense(self) -> Any:
        """[*lead, *shape]."""
        if self.values is None:
            dense = jax.nn.one_hot(self.indices, self.width, dtype=self.dtype)
        else:
            lead = self.indices.shape[:-1]
            flat = self.indices.reshape(-1, self.indices.shape[-1])
            rows = jnp.arange(flat.shape[0])[:, None]
            dense = jnp.zeros((flat.shape[0], self.width), self.dtype)
            dense = dense.at[rows, flat].add(self.values.reshape(flat.shape)).reshape(*lead, self.width)
        return dense.reshape(*dense.shape[:-1], *self.shape)

    def dot(self, matrix: Any) -> Any:
        """`sample @ matrix`: [*lead, width] x [width, *out] -> [*lead, *out], as a gather of rows."""
        if self.values is None:
            return matrix[self.indices]
        values = self.values.reshape(*self.values.shape, *(1,) * (matrix.ndim - 1))
        return jnp.sum(matrix[self.indices] * values, axis=self.indices.ndim - 1)

    def pick(self, x: Any) -> Any:
        """`x @ sample` for one sample: [*map, width] -> [*map], as a choice of elements."""
        if self.values is None:
            return _element(x, self.indices)
        return jnp.sum(x[..., self.indices] * self.values, -1)


@jax.custom_vjp
def _element(x: Any, index: Any) -> Any:
    """`x[..., index]`. Its gradient is a comparison: XLA fuses that with what is added to it, a scatter it does not."""
    return x[..., index]


def _element_forward(x: Any, index: Any) -> Any:
    return x[..., index], jnp.arange(x.shape[-1]) == index


_element.defvjp(_element_forward, lambda here, d: (jnp.where(here, d[..., None], jnp.zeros((), d.dtype)), None))


def dense(x: Any) -> Any:
    """The array itself, or the dense form of a Sparse."""
    return x.todense() if isinstance(x, Sparse) else x
