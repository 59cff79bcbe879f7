"""What a learner counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """A learner's counts of steps that were taken. With its optax state and rate schedule, they are all its state.

    ``rate_samples`` and ``rate_sweeps`` are the counts at which the schedule of the learning rate started; ``smoothed``
    is the number of updates (adam, rmsprop) or fsadagrad's smoothed number of samples since the state was last reset.
    """

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0
    rate_samples: int = 0
    rate_sweeps: int = 0
    smoothed: float = 0.0
