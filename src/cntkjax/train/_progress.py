"""How far training has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Counts of what was trained on.

    Steps that were skipped, because the learning rate was 0, count only with distributed learners, as in CNTK.
    """

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0
