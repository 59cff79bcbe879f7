"""What a learner has seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """What a learner has seen; with the optax state and the rate's schedule, all that changes while it learns.

    ``rate_samples`` and ``rate_sweeps`` are what it had seen when the schedule of the learning rate began; ``smoothed``
    is the number of updates (adam, rmsprop) or fsadagrad's smoothed number of samples since the state was last reset.
    """

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0
    rate_samples: int = 0
    rate_sweeps: int = 0
    smoothed: float = 0.0
