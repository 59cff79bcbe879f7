"""Steps that are taken in pieces, by several programs or by users' code, and what an exception between these undoes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

from ...graph.variable import Leaf, set_value, value_of
from ..lower.carry import Memory
from ..plan.plan import Plan
from ..run.handover import STATE, finish, settle
from .learner import StepLearner


class Undo:
    """A scope at whose end all state is as at its beginning, unless `keep` was called; no array may be donated in it.

    `leaves`: those that change, beside the plan's. `pending`: an object whose attributes change.
    """

    def __init__(
        self, plan: Plan, leaves: Iterable[Leaf], learners: Sequence[StepLearner], memory: Memory, pending: object
    ) -> None:
        with STATE:
            settle()
            self._leaves = {leaf: value_of(leaf) for leaf in (*plan.leaves, *leaves)}
            self._learners = [(learner, learner.optax_state) for learner in learners]
            self._objects = [(each, dict(vars(each))) for each in (memory, memory.streams, pending)]
        self._is_kept = False

    def keep(self) -> None:
        """Leave the state as it is; to be called where the last of it is handed over."""
        self._is_kept = True

    def __enter__(self) -> Undo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_kept:
            finish(self._restore)

    def _restore(self) -> None:
        for leaf, value in self._leaves.items():
            set_value(leaf, value)
        for learner, state in self._learners:
            learner.optax_state = state
        for each, attributes in self._objects:
            vars(each).update(attributes)


__all__ = ["Undo"]
