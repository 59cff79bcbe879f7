"""State that programs read and write: values of parameters and constants, and what delays carry to the next minibatch.

Programs themselves are pure: state is among their inputs, and its new values are among their outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from ..._typing import Array
from ...graph.cells import Changes
from ...graph.errors import AxisError
from ...graph.variable import Leaf, held_arrays, new_value, relocate, value_of
from ..lower.carry import Memory
from ..lower.values import Context
from ..plan.plan import Plan
from ..xla.sibling_kernels import joined_siblings
from ..xla.versions import double_precision
from .handover import STATE, copied, settle
from .minibatch import PackedMinibatch, unequal_lengths

T = TypeVar("T")


class StateChanges(NamedTuple):
    """What a program computes besides its outputs.

    `updates`: new values of leaves, by their place in the plan. `carried`: what each of the plan's delays carries over
    to the next minibatch, or None. `lengths`: those of the sequences of each pair in the plan's
    `computed_equal_lengths`.
    """

    updates: dict[int, Array]
    carried: list[Array | None]
    lengths: list[tuple[Array, Array]]


def state_changes(plan: Plan, ctx: Context) -> StateChanges:
    """The changes that the traced operations of a plan have entered in the context."""
    updates = {plan.leaves.index(leaf): value for leaf, value in ctx.updates.items()}
    lengths = [
        (ctx.layout(a.dynamic_axes).length, ctx.layout(b.dynamic_axes).length) for a, b in plan.computed_equal_lengths
    ]
    return StateChanges(joined_siblings(updates), [ctx.carried_out.get(n) for n in plan.delays], lengths)


def computed_lengths_error(plan: Plan, minibatch: PackedMinibatch, changes: StateChanges) -> AxisError | None:
    """The error if lengths of sequences that a program computes differ, but have to be equal."""
    if not plan.computed_equal_lengths:
        return None
    for (a, b), pair in zip(plan.computed_equal_lengths, jax.device_get(changes.lengths), strict=True):
        lengths_a, lengths_b = (lengths[: minibatch.count] for lengths in pair)
        if not np.array_equal(lengths_a, lengths_b):
            return unequal_lengths(a, b, lengths_a, lengths_b)
    return None


def changes_of_cells(plan: Plan, minibatch: PackedMinibatch, memory: Memory, changes: StateChanges) -> Changes:
    """New values of leaves, and in `memory` what delays carry over to the next minibatch."""
    cells = dict(memory.after(plan.delays, changes.carried, minibatch.slots))
    for i, value in changes.updates.items():
        cells |= new_value(plan.leaves[i], value)
    return cells


def leaf_array(leaf: Leaf) -> jax.Array:
    """The value of a leaf on the device, where it stays from then on."""
    array = value_of(leaf)
    if not isinstance(array, jax.Array):
        with double_precision(array.dtype == np.float64):
            # A copy: the training step donates it, and the user may still hold the NumPy array.
            array = jax.device_put(array, may_alias=False)
            relocate(leaf, array)
    return array


def arrays_of(leaves: Sequence[Leaf]) -> list[jax.Array]:
    """The values of leaves on the device: mostly they are there, which takes no call for each leaf."""
    arrays = held_arrays(leaves)
    are_there = all(issubclass(kind, jax.Array) for kind in set(map(type, arrays)))
    return arrays if are_there else [leaf_array(leaf) for leaf in leaves]


def leaf_arrays(plan: Plan) -> list[jax.Array]:
    """The values of the parameters and constants on the device, in the plan's order, all before or after a step."""
    with STATE:
        settle()
        return outliving(plan, arrays_of(plan.leaves))


def outliving(plan: Plan, arrays: T) -> T:
    """The arrays, or copies of them for a program that calls Python while other threads may train.

    A step of theirs that donated the arrays would wait for the program, and what that calls may wait for `STATE`.
    """
    return copied(arrays) if plan.calls_python and threading.active_count() > 1 else arrays


__all__ = [
    "StateChanges", "arrays_of", "changes_of_cells", "computed_lengths_error", "leaf_array", "leaf_arrays",
    "outliving", "state_changes",
]
