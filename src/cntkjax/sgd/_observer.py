"""What a run tells those who write a log of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import SupportsFloat

from .history import Epoch


class Observer:
    """Gets the events of a run, in this order in each epoch; a subclass defines the methods that it needs."""

    def resumes(self, samples: int) -> None:
        """Called first, with the samples that a run which goes on from a checkpoint has seen."""

    def begins(self, epoch: Epoch, momentum: float) -> None:
        """Called before an epoch, whose losses are not known yet; the momentum is that of a sample."""

    def trained(self, samples: int, sums: Sequence[SupportsFloat]) -> None:
        """Called after a minibatch of an epoch or a trial.

        `sums`: of loss and metrics over its samples, perhaps not computed yet.
        """

    def tries(self, epoch: int, title: str, rate: float, size: int) -> None:
        """Called before each trial that a search, which has a title, runs before an epoch."""

    def tried(self, epoch: int, rate: float, size: int) -> None:
        """Called after each trial."""

    def searches(self, finding: str) -> None:
        """Called with what a search before an epoch, for a rate or a size, does or finds."""

    def ended(self, epoch: Epoch) -> None:
        """Called after an epoch, before the validation data are evaluated."""

    def chooses(self, best: Mapping[str, Epoch]) -> None:
        """Called after the evaluation of validation data, with the best epoch so far by each criterion."""

    def copies(self, criterion: str, epoch: int, path: str, copy: str) -> None:
        """Called after the training, when the model of the epoch that is best by a criterion has been copied."""

    def saves(self, path: str) -> None:
        """Called before a checkpoint is written."""

    def returns(self, path: str, epoch: int, rate: float, samples: int) -> None:
        """Called when epochs are repeated from the checkpoint of an epoch on.

        `rate`: per sample, of the next epoch. `samples`: of the epochs that are repeated.
        """

    def stops(self, epoch: int, rate: float, least: float) -> None:
        """Called when training ends before an epoch, whose rate would be smaller than the least one."""
