"""How far training has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """How far training has come; steps that were skipped, as the learning rate was 0, do not count."""

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0
