"""Updates of parameters by learners, inside a program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, PyTree
from ..lower.rows import Rows, apply_update
from ..xla.sibling_kernels import complete
from .loss_scale import LossScale

if TYPE_CHECKING:
    import optax

Gradient: TypeAlias = "AnyArray | Rows"
Gradients: TypeAlias = "Sequence[Sequence[Gradient]]"
"""Gradients of the parameters, in one list for each learner."""

Hyperparameters: TypeAlias = Mapping[str, np.ndarray | np.generic]


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


def update_key(gradients: Gradients, hypers: Sequence[Hyperparameters | None]) -> Hashable:
    """What decides on the shapes of an update, beside the learners."""
    leaves, structure = jax.tree.flatten(gradients)
    return structure, tuple((g.shape, g.dtype) for g in leaves), tuple(h is None for h in hypers)


__all__ = ["Gradient", "Gradients", "Hyperparameters", "TrainedState", "update_key", "updated"]
