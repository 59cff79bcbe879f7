"""Learners written in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cntkjax.learners._learner import Learner
from cntkjax.learners._schedules import TrainingParameterSchedule


class UserLearner(Learner):
    """Base of learners whose ``update`` is Python code: it gets the gradients and sets the parameters itself.

    The trainer calls ``update`` after each minibatch and returns what it returns from ``train_minibatch``. As in CNTK,
    the counters (and with them ``learning_rate()``) stand still unless ``update`` calls ``advance``.

    Shapes: gradients as their parameters: arrays with ``as_numpy``, otherwise ``NDArrayView``.
    Errors: as :class:`Learner`.
    Source: CNTK 2.7.
    """

    def __init__(
        self, parameters: Sequence[Any], lr_schedule: TrainingParameterSchedule, as_numpy: bool = True
    ) -> None:
        super().__init__(parameters, lr_schedule)
        self.as_numpy = as_numpy

    def update(self, gradient_values: Mapping[Any, Any], training_sample_count: int, sweep_end: bool = False) -> bool:
        """One step with gradients summed over the samples; to be written by each class. Whether it was taken."""
        needed = "update(gradient_values, training_sample_count, sweep_end)"
        raise NotImplementedError(f"{type(self).__name__} must define {needed}")
