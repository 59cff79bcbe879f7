"""State that is replaced, never changed: the values of several cells at once, or none of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


class Cell(Generic[T]):
    """Holds one value, which other code replaces but does not change."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


Changes: TypeAlias = Mapping[Cell[Any], Any]
"""New values of cells."""

_assign: Any = vars(Cell)["value"].__set__


def commit(changes: Changes) -> None:
    """Replace the values of all these cells.

    This is one call into C: no bytecode runs between two of the assignments, so neither an exception sent to this
    thread nor another thread comes between them.

    >>> samples, loss = Cell(0), Cell(1.5)
    >>> commit({samples: 64, loss: 0.5})
    >>> samples.value, loss.value
    (64, 0.5)
    """
    before = [cell.value for cell in changes]  # what is destroyed may run code of its own, so it is destroyed later
    deque(map(_assign, changes, changes.values()), maxlen=0)
    del before


__all__ = ["Cell", "Changes", "commit"]
