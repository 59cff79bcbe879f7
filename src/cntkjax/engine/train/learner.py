"""What a training step needs of a learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ..._typing import PyTree
from ...graph.cells import Cell

if TYPE_CHECKING:
    import optax


class StepLearner(Protocol):
    """A learner as a compiled step sees it: parameters, and an optax transformation with its state and scalars.

    `optax_cell`: where `optax_state` is held. `runs_python`: the learner goes on in Python code of users when the
    program has ended.
    """

    optax_cell: Cell[PyTree]
    runs_python: ClassVar[bool]

    @property
    def optax_state(self) -> PyTree:
        """The state of `transform`, which is made when it is first read."""

    def state_shapes(self) -> PyTree:
        """The shapes and types of `optax_state`, which need not be there yet."""

    @property
    def parameters(self) -> Sequence[Any]:
        """The leaves that the learner updates, in the order of `transform`'s arrays."""

    @property
    def transform(self) -> optax.GradientTransformationExtraArgs:
        """Turn gradients into updates; its links receive ``hyper`` as a keyword."""

    def hyper(self, sample_count: int, flagged: bool = False) -> Mapping[str, np.ndarray | np.generic] | None:
        """The scalars of a step on this many samples, under the same names for each; None if the step is skipped.

        `flagged`: never None; "learns" is 1 or, if the step is skipped, 0.
        """
