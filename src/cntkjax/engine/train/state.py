"""The state of a training: the values of some cells, which a step replaces all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...graph.cells import Cell, Changes
from ...graph.variable import Leaf, cell_of, new_value, value_of
from ..lower.carry import Memory
from ..plan.plan import Plan
from ..run.handover import copied
from ..run.state import leaf_array
from .learner import StepLearner
from .loss_scale import LossScale
from .update import Gradients, TrainedState


class Accumulated(NamedTuple):
    """What waits for the next minibatch: gradients that no learner has used yet, and the loss scale.

    Units: `samples` and `minibatches` count what the gradients are sums over.
    """

    gradients: Gradients | None = None
    samples: int = 0
    minibatches: int = 0
    scale: LossScale | None = None


class TrainingState:
    """Where the state that a step computes with is held. Others of the trainer's cells count the steps.

    `parameters`: those of each learner. `memory`, `pending`: shared by steps that alternate.
    """

    def __init__(
        self, plan: Plan, learners: Sequence[StepLearner], memory: Memory, pending: Cell[Accumulated]
    ) -> None:
        self.learners, self.memory, self.pending = learners, memory, pending
        self.parameters: list[list[Leaf]] = [list(learner.parameters) for learner in learners]
        trained = [p for group in self.parameters for p in group]
        self.cells: list[Cell[Any]] = [
            *map(cell_of, dict.fromkeys([*plan.leaves, *trained])), *(learner.optax_cell for learner in learners),
            *memory.cells, pending,
        ]
        self._runs_python = any(learner.runs_python for learner in learners)

    def trained(self, learns: bool = True) -> TrainedState:
        """What a program donates; without the learners' states if they do not learn in it.

        Copies where learners run Python code, whose steps can be undone until their end.
        """
        values = [[leaf_array(p) for p in group] for group in self.parameters]
        states = [learner.optax_state for learner in self.learners] if learns else []
        state = TrainedState(values, states, self.pending.value.scale)
        return copied(state) if self._runs_python else state

    def shapes(self, learns: bool) -> TrainedState:
        """As `trained`, for compiling: nothing is made, and states of learners are only described."""
        values = [[value_of(p) for p in group] for group in self.parameters]
        states = [learner.state_shapes() for learner in self.learners] if learns else []
        return TrainedState(values, states, self.pending.value.scale)

    def after(self, trained: TrainedState) -> Changes:
        """What changes when a program has returned this in the place of what it was given."""
        changes: dict[Cell[Any], Any] = {self.pending: self.pending.value._replace(scale=trained.loss_scale)}
        for group, values in zip(self.parameters, trained.parameters, strict=True):
            for parameter, value in zip(group, values, strict=True):
                changes |= new_value(parameter, value)
        for learner, state in zip(self.learners, trained.learners, strict=bool(trained.learners)):
            changes[learner.optax_cell] = state
        return changes


__all__ = ["Accumulated", "TrainingState"]
