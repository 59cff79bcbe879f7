"""Where the numbers of a call of `steps.c` lie: arrays in buffers, and the memory for them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from .library import LOOP

Samples: TypeAlias = "np.ndarray[Any, Any]"
_ALIGNMENT = 64  # bytes, of a cache line
_MOST_KEPT = 1 << 24  # numbers
ARENA, CONSTANTS, INPUT = range(3)  # buffers of a call; there may be more inputs after the first
NO_BORDER = 0, 0, 0, 0


@dataclass(eq=False)
class Array:
    """Numbers of a call: `first` is their place in a buffer, for those of the arena known at last.

    Arrays of equal `kind` may lie in one place, one after the other. That has the size of their images with `border`,
    which is set to 0 before the first step.
    """

    buffer: int
    size: int
    kind: Any = None
    first: int = 0
    border: tuple[int, ...] = NO_BORDER
    initial: list[float] | None = None  # what delays read in the border


@dataclass(frozen=True)
class Place:
    """Where the elements of a value lie: how far images, rows and columns are apart. Channels are neighbours."""

    array: Array
    first: int
    image: int
    row: int
    column: int
    step: int = 0

    def as_columns(self) -> Place:
        """Images of one position as the columns of one row."""
        return replace(self, image=0, row=0, column=self.image)

    def in_loop(self, length: int, is_reverse: bool) -> Place:
        """One step of each sequence."""
        first = self.first + (length - 1) * self.column if is_reverse else self.first
        return replace(self.as_columns(), first=first, step=-self.column if is_reverse else self.column)


class _Arenas(threading.local):
    """Memory for a call, of each thread; what was in it before is still there."""

    def __init__(self) -> None:
        self._arena = np.empty(0, np.float32)

    def of_size(self, size: int) -> Samples:
        """At least so many numbers; they are kept until more are needed, unless they are many."""
        if size <= len(self._arena):
            return self._arena
        arena = aligned(np.empty(size, np.float32))
        if size <= _MOST_KEPT:
            self._arena = arena
        return arena


ARENAS = _Arenas()


def coordinates(place: Place) -> tuple[int, ...]:
    """The fields of a place as `STEP` has them."""
    array = place.array
    return array.buffer, array.first + place.first, place.image, place.row, place.column, place.step


def allocate(steps: Sequence[Mapping[str, Any]], kept: Sequence[Array]) -> int:
    """Give arrays of the arena their places, where those of others that are not read any more may be; its size."""
    arrays = [
        list(dict.fromkeys(v.array for v in step.values() if isinstance(v, Place) and v.array.buffer == ARENA))
        for step in steps
    ]
    last = {array: i for i, used in enumerate(arrays) for array in used}
    for i, step in enumerate(steps):
        if step["kind"] == LOOP:  # each of its steps reads what those before it have written
            end = i + step["body"]
            last.update({array: max(last[array], end) for used in arrays[i + 1 : end + 1] for array in used})
    last.update(dict.fromkeys(kept, len(steps)))
    size = 0
    free: dict[Hashable, list[int]] = {}
    placed: set[Array] = set()
    for i, used in enumerate(arrays):
        for array in used:
            if array in placed:
                continue
            places = free.setdefault(array.kind, [])
            if places:
                array.first = places.pop()
            else:
                array.first, size = size, size + -(-array.size // 16) * 16
            placed.add(array)
        for array in [array for array in placed if last[array] == i]:
            free.setdefault(array.kind, []).append(array.first)
    return size


def aligned(array: Samples) -> Samples:
    """A contiguous copy that begins at a cache line."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


__all__ = [
    "ARENA", "ARENAS", "CONSTANTS", "INPUT", "NO_BORDER", "Array", "Place", "Samples", "aligned", "allocate",
    "coordinates",
]  # fmt: skip
