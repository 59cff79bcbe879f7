"""How far training has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..engine.train.step import Outcome


@dataclass(frozen=True)
class Progress:
    """Counts of what was trained on.

    Steps that were skipped, because the learning rate was 0, count only with distributed learners, as in CNTK.
    """

    samples: int = 0
    minibatches: int = 0
    sweeps: int = 0


class Training(NamedTuple):
    """How far a training has come.

    `learned`: the samples of the first learner then. `ends_sweep`: whether a sweep has ended since learners took their
    last step. `previous`: the outcome of the last step, if it had samples. `trained`: whether a learner took a step in
    it, or may merge its model.
    """

    progress: Progress = Progress()
    learned: int = 0
    ends_sweep: bool = False
    previous: Outcome | None = None
    trained: bool = False
