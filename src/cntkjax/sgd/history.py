"""What happened in each epoch of a training."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """The record of an epoch. Losses and metrics are averages over samples; None for what was not computed.

    `rate` is per sample; `rate_factor` is what adjustAfterEpoch has multiplied the block's rate by so far.
    `metrics` are all of them by name, if there are several; `metric` is the first. `cv_criteria`: the loss and all
    metrics on validation data, by name.
    `repeats`: how often the epochs after it were worse, and were repeated from here with a smaller rate.
    `search_minibatches` were spent on trials of rates or sizes before the epoch. `trials` are the (rate, loss) pairs of
    the search for a rate.
    """

    number: int
    samples: int
    minibatches: int
    loss: float
    metric: float | None
    rate: float
    rate_factor: float
    minibatch_size: int
    cv_loss: float | None = None
    cv_metric: float | None = None
    search_minibatches: int = 0
    trials: Sequence[tuple[float, float]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    repeats: int = 0
    cv_criteria: Mapping[str, float] = field(default_factory=dict)


@dataclass
class History:
    """The records of all epochs, in order; epochs count from 1.

    `ended_early`: why training has ended before maxEpochs, or "".

    >>> history = History([Epoch(1, 60, 6, 0.5, None, 0.01, 1.0, 10)])
    >>> len(history), history[0].loss, history.losses
    (1, 0.5, [0.5])
    >>> History.from_text(history.to_text()) == history
    True
    """

    epochs: list[Epoch] = field(default_factory=list)
    ended_early: str = ""

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __getitem__(self, index: int) -> Epoch:
        return self.epochs[index]

    @property
    def losses(self) -> list[float]:
        """The training loss of each epoch."""
        return [epoch.loss for epoch in self.epochs]

    @property
    def rates(self) -> list[float]:
        """The learning rate per sample of each epoch."""
        return [epoch.rate for epoch in self.epochs]

    def best(self) -> dict[str, Epoch]:
        """The epoch with the smallest value of each criterion on validation data; the first of several."""
        names = self.epochs[-1].cv_criteria if self.epochs else ()
        measured = {name: [each for each in self.epochs if name in each.cv_criteria] for name in names}
        return {name: min(epochs, key=lambda each, name=name: _order(each.cv_criteria[name]))  # type: ignore[misc]
                for name, epochs in measured.items()}

    @property
    def minibatch_sizes(self) -> list[int]:
        """The minibatch size of each epoch."""
        return [epoch.minibatch_size for epoch in self.epochs]

    def to_text(self) -> str:
        """The history as JSON, for checkpoints."""
        return json.dumps([asdict(epoch) for epoch in self.epochs])

    @classmethod
    def from_text(cls, text: str) -> History:
        """The history that `to_text` wrote."""
        records = json.loads(text)
        for record in records:
            record["trials"] = tuple((rate, loss) for rate, loss in record["trials"])
        return cls([Epoch(**record) for record in records])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw loss, learning rate and minibatch size over the epochs; returns the figure, and saves it to `path`.

        Errors: ImportError, with the pip command to run, without matplotlib.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError('plots need matplotlib: pip install "cntkjax[plot]"') from error
        figure = Figure(figsize=(7, 7), layout="constrained")
        loss, rate, size = figure.subplots(3, sharex=True)
        numbers = [epoch.number for epoch in self.epochs]
        loss.plot(numbers, self.losses, "o-", label="training")
        if any(epoch.cv_loss is not None for epoch in self.epochs):
            loss.plot(numbers, [epoch.cv_loss for epoch in self.epochs], "s-", label="validation")
            loss.legend()
        loss.set_ylabel("loss per sample")
        for epoch in self.epochs:
            rate.plot([epoch.number] * len(epoch.trials), [r for r, _ in epoch.trials], "_", color="silver")
        rate.plot(numbers, self.rates, "o-")
        rate.set(yscale="log", ylabel="learning rate per sample")
        size.step(numbers, self.minibatch_sizes, "o-", where="mid")
        size.set(yscale="log", ylabel="minibatch size (samples)", xlabel="epoch")
        size.set_yticks(sorted(set(self.minibatch_sizes)), labels=sorted(set(self.minibatch_sizes)))
        size.minorticks_off()
        if path is not None:
            figure.savefig(path)
        return figure


def _order(value: float) -> tuple[bool, float]:
    """What is sorted by: no number is worse than any number."""
    return math.isnan(value), value
