"""optax transformations as learners, an extension of CNTK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from .._typing import PyTree
from ..graph.arguments import public
from ..variables import Parameter
from ._learner import Learner, LearnerOptions
from ._schedules import IGNORE, Schedulable, learning_parameter_schedule

if TYPE_CHECKING:
    import optax

    from ._transforms import Hyper


@public
def from_optax(
    parameters: Sequence[Parameter],
    transformation: optax.GradientTransformation,
    lr_schedule: Schedulable | None = None,
) -> Learner:
    """A learner that runs an optax optimizer, such as ``optax.adamw(1e-3)`` or a chain of transformations.

    Its updates are added to the parameters, as in optax; with `lr_schedule` they are multiplied by the learning rate
    first: then the transformation should have a rate of 1, as in ``optax.lion(1.0)``.

    Shapes: the transformation gets a list of gradients, in the order and of the shapes of `parameters`.
    Units: gradients are means over the samples of the minibatch; the rate is per minibatch.
    Errors: TypeError if `transformation` is not an optax transformation; otherwise as :class:`Learner`.

    >>> import cntkjax as C, numpy as np, optax
    >>> w = C.parameter((2,), init=1)
    >>> learner = from_optax([w], optax.sgd(0.1, momentum=0.9))
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """
    import optax  # slow to import

    if not isinstance(transformation, optax.GradientTransformation):
        raise TypeError(f"from_optax needs an optax transformation, such as optax.adam(1e-3), not {transformation!r}")
    rate = learning_parameter_schedule(1.0, minibatch_size=IGNORE) if lr_schedule is None else lr_schedule
    return Learner(parameters, rate, [("optax", _as_decrease(transformation))], LearnerOptions(minibatch_size=IGNORE))


def _as_decrease(transformation: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """The transformation with its updates negated: rules of learners compute decreases, optax increases."""
    import optax

    from ._transforms import densify

    inner = optax.with_extra_args_support(transformation)

    def update(
        gradients: PyTree, state: PyTree, values: PyTree = None, *, hyper: Hyper, **_: Any
    ) -> tuple[PyTree, PyTree]:
        updates, state = inner.update(densify(gradients), state, values)
        rate: Any = hyper["rate"]
        return jax.tree.map(lambda u: (-rate * u).astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


__all__ = ["from_optax"]
