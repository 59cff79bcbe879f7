"""optax transformations as learners. CNTK has nothing alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import optax

from ._learner import Learner, Options
from ._schedules import IGNORE, Schedulable, learning_parameter_schedule
from ._transforms import densified


def from_optax(
    parameters: Sequence[Any], transformation: optax.GradientTransformation, lr_schedule: Schedulable | None = None
) -> Learner:
    """A learner that does what an optax optimizer does, such as ``optax.adamw(1e-3)`` or a chain of transformations.

    Its updates are added to the parameters, as optax means them, times the learning rate if a schedule is given: then
    let the transformation have the rate 1, as in ``optax.lion(1.0)``.

    Shapes: the transformation sees a list of gradients, in the order of `parameters`.
    Units: gradients are means over the samples of the minibatch; the rate is per minibatch.
    Errors: TypeError if `transformation` is none; otherwise as :class:`Learner`.

    >>> import cntkjax as C, numpy as np
    >>> w = C.parameter((2,), init=1)
    >>> learner = from_optax([w], optax.sgd(0.1, momentum=0.9))
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """
    if not isinstance(transformation, optax.GradientTransformation):
        raise TypeError(f"from_optax needs an optax transformation, such as optax.adam(1e-3), not {transformation!r}")
    rate = learning_parameter_schedule(1.0, minibatch_size=IGNORE) if lr_schedule is None else lr_schedule
    return Learner(parameters, rate, [("optax", _decrease(transformation))], Options(minibatch_size=IGNORE))


def _decrease(transformation: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """What is to be subtracted from parameters, where optax says what is to be added."""
    inner = optax.with_extra_args_support(transformation)

    def update(gradients: Any, state: Any, values: Any = None, *, hyper: Any, **_: Any) -> tuple[Any, Any]:
        updates, state = inner.update(densified(gradients), state, values)
        return jax.tree.map(lambda u: (-hyper["rate"] * u).astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


__all__ = ["from_optax"]
