"""The check of indices that are fed, or constants, before a program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...graph.errors import IndexRangeError, explain
from ...graph.variable import Edge, Leaf, value_of
from ..data.ragged import Ragged
from ..plan.indices import Indices
from ..plan.parts import resolve
from ..plan.plan import Plan
from .handover import STATE, settle


def check_indices(plan: Plan, feeds: Sequence[object]) -> None:
    """Compare indices with the size of the axis that they select from; data on the device are left to the program.

    A constant is checked when it has a new value. `feeds` are in the order of the plan's arguments.
    Errors: IndexRangeError that names the operation, the index, its position and the size.
    """
    if not plan.indices:
        return
    check_constant_indices(plan)
    fed = dict(zip(plan.arguments, feeds, strict=True))
    for indices in plan.indices:
        if indices.source in fed:
            _check_fed(indices, fed)


def check_constant_indices(plan: Plan) -> None:
    """The check of constants alone. Errors: see `check_indices`."""
    for number, indices in enumerate(plan.indices):
        constant = indices.source
        if not isinstance(constant, Leaf) or plan.checked_values.get(number) is value_of(constant):
            continue
        with STATE:
            settle()
            value = value_of(constant)
            array = np.asarray(value)
        if (place := _first_out_of_range(array, indices)) is not None:
            raise _error(indices, array[place], f"element {_text(place)} of a constant")
        plan.checked_values[number] = value


def _check_fed(indices: Indices, fed: Mapping[Edge, object]) -> None:
    feed = fed[indices.source]
    data = feed.data if isinstance(feed, Ragged) else feed
    if not isinstance(data, np.ndarray):
        return
    if (place := _first_out_of_range(data, indices)) is not None:
        raise _error(indices, data[place], _place_of(feed, place))


def _first_out_of_range(data: np.ndarray, indices: Indices) -> tuple[int, ...] | None:
    """The place in samples of the source of the first index that is, without its fraction, out of range."""
    used, size = indices.of(data), indices.size
    if not used.size or (float(used.min()) > -1 and float(used.max()) < size):
        return None
    wrong = ~((used > -1) & (used < np.float64(size)))  # which float32 may not hold
    numbers = indices.of(np.arange(data.size).reshape(data.shape))[wrong]
    return tuple(int(i) for i in np.unravel_index(numbers[0], data.shape))


def _place_of(feed: object, place: tuple[int, ...]) -> str:
    """Where something is in what is fed; `place` begins with the number of the sample, if it is a minibatch."""
    if not isinstance(feed, Ragged):
        return f"element {_text(place)} of what is fed"
    sample, *element = place
    where = f"element {_text(tuple(element))} of " if element else ""
    if feed.lengths is None:
        return f"{where}sample {sample} of what is fed"
    sequence = int(np.searchsorted(feed.offsets, sample, side="right")) - 1
    return f"{where}step {sample - int(feed.offsets[sequence])} of sequence {sequence} of what is fed"


def _text(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]"


def _error(indices: Indices, index: np.number, place: str) -> IndexRangeError:
    """The error for an index out of range."""
    node = indices.node
    number = int(index) if np.isfinite(index) and index == int(index) else index
    return IndexRangeError(explain(
        f"{node.op_name}: the index {number}, {place}, is not one of an axis of {indices.size} elements",
        {"source": indices.source} | {f"[{i}]": resolve(v) for i, v in enumerate(node.node_inputs)},
        f"give indices from 0 to {indices.size - 1}, or a larger reference; count them from 0",
    ))


__all__ = ["check_constant_indices", "check_indices"]
