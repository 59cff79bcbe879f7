"""What a run tells those who write a log of their own."""

from __future__ import annotations

from .history import Epoch


class Observer:
    """Gets the events of a run, in this order in each epoch; a subclass defines the methods that it needs."""

    def begins(self, epoch: Epoch, momentum: float) -> None:
        """Called before an epoch, whose losses are not known yet; the momentum is that of a sample."""

    def ended(self, epoch: Epoch) -> None:
        """Called after an epoch, when the validation data are evaluated."""

    def saves(self, path: str) -> None:
        """Called before a checkpoint is written."""

    def loads(self, path: str) -> None:
        """Called before training returns to the model of a checkpoint."""
