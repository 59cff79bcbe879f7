"""What the host sends with each run of a program: to GPUs, and to several devices, in few arrays, before it is started.

Each array that jax sends to a GPU is a call of the driver, some 10 microseconds, more than most kernels take; each that
it places on one of several CPU devices takes as long. A step has 8 to 14: samples, counts, layouts, seeds, rates. The
small ones travel as one array of words, which the program cuts into pieces. Programs run asynchronously, so the arrays
of a step arrive while the step before it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._typing import AnyArray, Array, PyTree, Shape
from ..data.layout import STATIC
from ..xla.platform import lowering

_LARGE = 2**16  # bytes of an array that is sent as it is, because the program would have to copy its piece
_MOST_LARGE = 2  # arrays that are sent as they are
_WORD = 4  # bytes

_Kind: TypeAlias = "tuple[Shape, np.dtype[Any]] | None"  # of an array of the host; None for what is on the device


class _Piece(NamedTuple):
    """An array among the words: those from `begin` to `end`."""

    begin: int
    end: int
    shape: Shape
    dtype: np.dtype[Any]

    def view(self, words: np.ndarray) -> np.ndarray:
        """The array, in the memory of the words. Shapes: uint32 [words] -> `shape`."""
        part = words[self.begin : self.end].view(self.dtype)
        return part[: prod(self.shape)].reshape(self.shape)

    def cut_from(self, words: AnyArray) -> Array:
        """The array, inside a program. Shapes: uint32 [words] -> `shape`.

        Two words are put together by arithmetic. As a view of them the array would be in their memory, and XLA lets a
        kernel write its result there that reads the array both element by element and, in another view, elsewhere: on
        an H100 the double precision sequences that a short loop and something behind it read were overwritten (jax
        0.11).
        """
        part = words[self.begin : self.end]
        if self.dtype.itemsize > _WORD:
            pairs = part.reshape(-1, 2).astype(jnp.uint64)
            part = pairs[:, 1] << 32 | pairs[:, 0]
        stored = np.dtype(np.uint8) if self.dtype == bool else self.dtype
        array = lax.bitcast_convert_type(part, stored).reshape(-1)[: prod(self.shape)].reshape(self.shape)
        return array.astype(bool) if self.dtype == bool else array


class _Form(NamedTuple):
    """How the leaves of a tree are sent: as pieces of this many words, or, where there is None, whole.

    `large`: the number of leaves that are arrays of the host, but are sent whole.
    """

    structure: jax.tree_util.PyTreeDef
    pieces: tuple[_Piece | None, ...]
    words: int
    large: int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sent:
    """A tree whose arrays are on the device, or on their way.

    `whole`: leaves that are not among the words: large arrays of the host, and those that were on the device before.
    """

    words: AnyArray
    whole: list[AnyArray]
    form: _Form = field(metadata=STATIC)

    @property
    def arrays_sent(self) -> int:
        """The number of arrays that the host sends for the tree."""
        return 1 + self.form.large


def sent(tree: PyTree) -> PyTree:
    """Arguments as a program takes them, which calls `received` first.

    On a CPU the tree itself, because a program reads NumPy arrays in place. Otherwise a tree on the device, to which at
    most three arrays are sent.
    """
    return jax.device_put(joined(tree)) if lowering().joined_transfers else tree  # leaves alone what is on a device


def joined(tree: PyTree) -> Sent:
    """Arguments as a program takes them, of which at most three arrays are still to be sent."""
    leaves, structure = jax.tree.flatten(tree)
    form = _form(structure, tuple(map(_kind, leaves)))
    words = np.empty(form.words, np.uint32)
    for leaf, piece in zip(leaves, form.pieces, strict=True):
        if piece is not None:
            piece.view(words)[...] = leaf
    whole = [leaf for leaf, piece in zip(leaves, form.pieces, strict=True) if piece is None]
    return Sent(words, whole, form)


def received(tree: PyTree) -> PyTree:
    """Inside a program: the tree that `sent` was given."""
    if not isinstance(tree, Sent):
        return tree
    whole = iter(tree.whole)
    leaves = [next(whole) if piece is None else piece.cut_from(tree.words) for piece in tree.form.pieces]
    return tree.form.structure.unflatten(leaves)


def shapes_of(tree: PyTree) -> PyTree:
    """The tree that `sent` was given, with shapes and types in the place of the arrays that were joined."""
    if not isinstance(tree, Sent):
        return tree
    whole = iter(tree.whole)
    pieces = tree.form.pieces
    leaves = [next(whole) if piece is None else jax.ShapeDtypeStruct(piece.shape, piece.dtype) for piece in pieces]
    return tree.form.structure.unflatten(leaves)


def _kind(leaf: object) -> _Kind:
    if not isinstance(leaf, np.ndarray | np.generic):
        return None
    return leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)


@lru_cache(maxsize=1024)
def _form(structure: jax.tree_util.PyTreeDef, kinds: Sequence[_Kind]) -> _Form:
    sizes = [0 if kind is None else prod(kind[0]) * kind[1].itemsize for kind in kinds]
    largest = sorted(range(len(kinds)), key=lambda i: -sizes[i])[:_MOST_LARGE]
    large = {i for i in largest if sizes[i] >= _LARGE}
    pieces: list[_Piece | None] = []
    end = 0
    for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if kind is None or i in large:
            pieces.append(None)
            continue
        begin, end = end, end - -size // _WORD
        pieces.append(_Piece(begin, end, *kind))
    return _Form(structure, tuple(pieces), end, len(large))


__all__ = ["Sent", "joined", "received", "sent", "shapes_of"]
