"""A training session over one epoch, or the minibatches of a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..train._sources import Inputs, SessionSource
from ..train.trainer import Trainer
from ..train.training_session import DataUnit, TrainingSession

UNLIMITED = 2**62  # samples


class Session(TrainingSession):
    """Trains until `max_samples` were seen in all, or `max_sweeps`, or `max_minibatches` in this session.

    `on_end` is called after each minibatch; training ends if it returns False. `on_start` is called before each.
    """

    def __init__(
        self, trainer: Trainer, source: SessionSource, size: int, inputs: Inputs, *, max_samples: int = UNLIMITED,
        max_sweeps: int | None = None, max_minibatches: int | None = None,
        on_start: Callable[[], object] | None = None, on_end: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(trainer, source, size, inputs, max_samples, None, None, None, None)
        self._trained_by, self._on_start, self._on_end = trainer, on_start, on_end
        self._max_sweeps = max_sweeps
        self._max_minibatches = None if max_minibatches is None else self._seen(DataUnit.minibatch) + max_minibatches

    def _seen(self, unit: DataUnit) -> int:
        return self._trained_by.total_number_of_units_seen(unit)

    def on_minibatch_start(self) -> None:
        """Call `on_start`."""
        if self._on_start is not None:
            self._on_start()

    def on_minibatch_end(self) -> bool:
        """Whether to go on."""
        limits: list[tuple[Any, DataUnit]] = [
            (self._max_sweeps, DataUnit.sweep), (self._max_minibatches, DataUnit.minibatch)
        ]
        continues = self._on_end is None or self._on_end()
        return continues and all(limit is None or self._seen(unit) < limit for limit, unit in limits)
