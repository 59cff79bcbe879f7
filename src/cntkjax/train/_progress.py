"""How far training has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Counts of what was trained on; steps that were skipped, because the learning rate was 0, do not count."""

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0
