"""Means and deviations that are computed from all data before training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.variable import set_value
from ..ops import alias
from ..train._sources import next_minibatch
from .network import Network
from .readers import Source, streams_of

_MINIBATCH = 16384  # samples
_LEAST_DEVIATION = 1e-10


def precompute(network: Network, source: Source) -> None:
    """Set the statistics of a network; the source ends after a sweep."""
    tallies = {name: _Moments() for _, name in network.statistics.values()}
    values = {name: alias(network.nodes[name]) for name in tallies}
    inputs: Any = streams_of([*values.values()], source)
    while minibatch := next_minibatch(source, _MINIBATCH, inputs):
        for name, value in values.items():
            arguments: Any = value.arguments
            tallies[name].add(value.eval({v: minibatch[v] for v in arguments}), value.output.shape)
    for constant, (operation, name) in network.statistics.items():
        tally = tallies[name]
        result = tally.mean if operation == "Mean" else 1 / np.maximum(tally.deviation, _LEAST_DEVIATION)
        variable: Any = network.nodes[constant]
        set_value(variable, result.reshape(variable.shape).astype(variable.dtype))
    network.statistics = {}  # a model that is saved now has them


class _Moments:
    """Sums over samples, in double precision."""

    def __init__(self) -> None:
        self._count, self._sum, self._squares = 0, np.zeros(()), np.zeros(())

    def add(self, value: Any, shape: tuple[int, ...]) -> None:
        """Count the samples of a minibatch: an array, or a list with one of each sequence."""
        for part in value if isinstance(value, list) else [value]:
            dense = np.asarray(part.todense() if hasattr(part, "todense") else part, np.float64)
            rows = dense.reshape(-1, int(np.prod(shape)))
            self._count += len(rows)
            self._sum = self._sum + rows.sum(0)
            self._squares = self._squares + (rows**2).sum(0)

    @property
    def mean(self) -> np.ndarray:
        """The mean of each element."""
        return np.asarray(self._sum / self._count)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of each element over all samples."""
        return np.asarray(np.sqrt(np.maximum(self._squares / self._count - self.mean**2, 0)))


__all__ = ["precompute"]
