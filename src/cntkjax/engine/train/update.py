"""Updates of parameters by learners, inside a program: gradients, trained state, and the exchange between workers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, PyTree
from ..data.shape_policy import Prices
from ..lower.rows import Rows, apply_update
from ..run.executables import DonatingFunction
from ..run.handover import Captures
from ..run.program import Program
from ..run.shape_choice import Agreed, Sizes
from ..xla.sibling_kernels import complete
from .learner import StepLearner
from .loss_scale import LossScale

if TYPE_CHECKING:
    import optax

Gradient: TypeAlias = "AnyArray | Rows"
Gradients: TypeAlias = "Sequence[Sequence[Gradient]]"
"""Gradients of the parameters, in one list for each learner."""

Hyperparameters: TypeAlias = Mapping[str, np.ndarray | np.generic]


class Counts(NamedTuple):
    """Samples of a step: those of the criteria that are reported, and those that each learner learns from."""

    reported: int
    learned: Sequence[int]


class TrainedState(NamedTuple):
    """State that each update replaces; its buffers are donated.

    `parameters`: values, in one list for each learner. `learners`: their optax states.
    """

    parameters: list[list[Array]]
    learners: list[PyTree]
    loss_scale: LossScale | None


def updated(
    transforms: Sequence[optax.GradientTransformationExtraArgs], state: TrainedState, gradients: Gradients,
    hypers: Sequence[Hyperparameters | None], everywhere: Callable[[Array], Array] = lambda flag: flag,
) -> TrainedState:
    """The state after an update by all learners; the same as before, if gradients overflow in float16.

    `transforms`: those of the learners. `hypers`: theirs; None for one that makes no update. `everywhere`: whether a
    flag is set on all devices, for gradients of which each has a part.
    """
    scale = state.loss_scale
    before = list(zip(state.parameters, state.learners, strict=True))
    after = [
        (values, learner_state) if h is None else _apply_transform(transform, g, learner_state, values, h)
        for transform, g, (values, learner_state), h in zip(transforms, gradients, before, hypers, strict=True)
    ]
    if scale is not None:
        finite = everywhere(jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradients)])))
        after = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
        scale = scale.updated(finite)
    return TrainedState([values for values, _ in after], [learner_state for _, learner_state in after], scale)


def _apply_transform(
    transform: optax.GradientTransformationExtraArgs, gradients: Sequence[Gradient], state: PyTree, values: list[Array],
    hyper: Hyperparameters,
) -> tuple[list[Array], PyTree]:
    """New values and state after one update by a learner; the old ones if it is flagged not to learn."""
    updates, new_state = transform.update(complete(gradients), state, values, hyper=hyper)
    after = jax.tree.map(apply_update, values, updates), new_state
    if "learns" not in hyper:
        return after
    return jax.tree.map(lambda new, old: jnp.where(hyper["learns"] == 1, new, old), after, (values, state))


class Update(Protocol):
    """What a step does between its gradients and the state after it, in this order: its methods in theirs."""

    def agree(self, samples: int, gradients: Gradients | None) -> int:
        """The number of samples of all workers, which may be 0. A worker without data has no gradients."""

    def counts(self, samples: int) -> Counts:
        """As what the samples of this worker, so many, and those of all, which it has agreed on, count."""

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """The scalars of the learners' steps; None for one that makes no update."""

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Donate the state, learn from the gradients of all workers, and capture the outputs; see `handover.py`."""

    def result(self, outputs: PyTree) -> tuple[TrainedState, list[Array]]:
        """The state after the update, and the sums over all workers."""


class Exchange(Update, Protocol):
    """An update that can be part of the program of the gradients, if all workers' minibatches have the same shapes.

    What a step calls then, in this order: `agree_on_sizes`, `agree_ahead`, `counts`, `hypers`, `joined`, `donated`,
    `result_of_joined`.

    `samples`: those of all workers in the step that was agreed on last. `shares`: the number of this worker's devices.
    """

    samples: int
    shares: int

    def agree_on_sizes(self, sizes: Sequence[Sizes], prices: Prices) -> Agreed | None:
        """The sizes of all workers' minibatches, so that all choose the same shape; None where there is no need."""

    def agree_ahead(self, samples: int, shapes: str) -> bool:
        """Whether all workers have minibatches of these shapes, and learn in the program of the gradients."""

    def joined(self, program: Program) -> Program:
        """That program."""

    def donated(self, state: TrainedState) -> PyTree:
        """What is donated to it."""

    def result_of_joined(self, outputs: PyTree) -> PyTree:
        """The outputs of `program`, with the state after the update, and the sums over all workers."""


class LocalUpdate:
    """The `Update` of a single worker."""

    def __init__(self, learners: Sequence[StepLearner]) -> None:
        self._learners = learners
        transforms = [learner.transform for learner in learners]
        self._run = DonatingFunction(
            lambda state, gradients, hypers: updated(transforms, state, gradients, hypers),
            description=lambda: (updated, transforms),
        )
        self._sums: list[Array] = []

    def agree(self, samples: int, gradients: Gradients | None) -> int:
        """Its own samples."""
        return samples

    def counts(self, samples: int) -> Counts:
        """Its own samples."""
        return Counts(samples, [samples] * len(self._learners))

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """Those of each learner."""
        return [learner.hyper(n) for learner, n in zip(self._learners, counts.learned, strict=True)]

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Learn from its own gradients."""
        assert gradients is not None
        self._sums = sums
        self._run(outputs, update_key(gradients, hypers), state, gradients, hypers)

    def result(self, outputs: TrainedState) -> tuple[TrainedState, list[Array]]:
        """The state after the update, and its own sums."""
        return outputs, self._sums


def update_key(gradients: Gradients, hypers: Sequence[Hyperparameters | None]) -> Hashable:
    """What decides on the shapes of an update, beside the learners."""
    leaves, structure = jax.tree.flatten(gradients)
    return structure, tuple((g.shape, g.dtype) for g in leaves), tuple(h is None for h in hypers)


__all__ = [
    "Counts", "Exchange", "Gradient", "Gradients", "Hyperparameters", "LocalUpdate", "TrainedState", "Update",
    "update_key", "updated",
]
