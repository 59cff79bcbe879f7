"""Updates of parameters by learners, inside a program: gradients, trained state, and the sum over workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, PyTree
from ..lower.rows import Rows, apply_update
from .learner import StepLearner
from .loss_scale import LossScale

if TYPE_CHECKING:
    import optax

Gradient: TypeAlias = "AnyArray | Rows"
Gradients: TypeAlias = "Sequence[Sequence[Gradient]]"
"""Gradients of the parameters, in one list for each learner."""

Hyperparameters: TypeAlias = Mapping[str, np.ndarray | np.generic]

AllReduce: TypeAlias = (
    "Callable[[Gradients | None, np.ndarray, Sequence[Sequence[jax.Array]]], tuple[Gradients | None, np.ndarray]]"
)
"""``all_reduce(gradients, figures, parameters)`` returns the sums of gradients and figures over all workers.

`gradients` are None on a worker without data; the last figure is the number of samples, and if that is 0 on all workers
the sum of gradients is None. `parameters` have the shapes and types of the gradients.
"""


class TrainedState(NamedTuple):
    """State that each update replaces; its buffers are donated.

    `parameters`: values, in one list for each learner. `learners`: their optax states.
    """

    parameters: list[list[Array]]
    learners: list[PyTree]
    loss_scale: LossScale | None


def updated(
    learners: Sequence[StepLearner], state: TrainedState, gradients: Gradients,
    hypers: Sequence[Hyperparameters | None],
) -> TrainedState:
    """The state after an update by all learners; the same as before, if gradients overflow in float16.

    `hypers`: those of each learner; None for one that makes no update.
    """
    scale = state.loss_scale
    before = list(zip(state.parameters, state.learners, strict=True))
    after = [
        (values, learner_state) if h is None else _apply_transform(learner.transform, g, learner_state, values, h)
        for learner, g, (values, learner_state), h in zip(learners, gradients, before, hypers, strict=True)
    ]
    if scale is not None:
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradients)]))
        after = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
        scale = scale.updated(finite)
    return TrainedState([values for values, _ in after], [learner_state for _, learner_state in after], scale)


def _apply_transform(
    transform: optax.GradientTransformationExtraArgs, gradients: Sequence[Gradient], state: PyTree, values: list[Array],
    hyper: Hyperparameters,
) -> tuple[list[Array], PyTree]:
    """New values and state after one update by a learner."""
    updates, state = transform.update(gradients, state, values, hyper=hyper)
    return jax.tree.map(apply_update, values, updates), state


def keep_local(
    gradients: Gradients | None, figures: np.ndarray, parameters: Sequence[Sequence[jax.Array]]
) -> tuple[Gradients | None, np.ndarray]:
    """The `AllReduce` of a single worker."""
    return gradients, figures


__all__ = ["AllReduce", "Gradient", "Gradients", "Hyperparameters", "TrainedState", "keep_local", "updated"]
