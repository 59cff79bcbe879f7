"""The faster of two ways to compute predictions, found by comparing them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..engine.data.ragged import Ragged
from ..engine.run.minibatch import Feeds
from ..graph.variable import Edge
from ..ops.functions import Function
from ._onnxruntime import OnnxPrediction

_ROUNDS, _SECONDS = 20, 0.2  # of a comparison: the fewer rounds, three at least

Compute: TypeAlias = Callable[[Any], list[Any]]


class Backend(Protocol):
    """What computes predictions: see `Prediction`."""

    @property
    def is_direct(self) -> bool:
        """True for dense inputs and outputs of samples."""

    def direct(self, examples: Mapping[Edge, np.ndarray]) -> Compute:
        """A function of arrays of the shapes of examples, in their order; only if `is_direct`."""

    def takes(self, feeds: Feeds) -> bool:
        """Whether it computes these data."""

    def __call__(self, feeds: Feeds) -> list[Any]:
        """The values of the outputs."""


def exported_prediction(function: Function, required: bool) -> OnnxPrediction | None:
    """The prediction by ONNX Runtime; None where that cannot be and is not `required`. Errors: see `OnnxPrediction`."""
    try:
        return OnnxPrediction(function)
    except ValueError:  # ExportError is one
        if required:
            raise
        return None


def faster(*backends: Backend | None) -> Backend:
    """The backend that there is; of several, for each shape the one that takes less time."""
    present = [backend for backend in backends if backend is not None]
    return present[0] if len(present) == 1 else _Faster(present)


class _Faster:
    """Compares backends with the first data of each shape. Threads may share it."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._chosen: dict[Hashable, Compute] = {}

    @property
    def is_direct(self) -> bool:
        return all(backend.is_direct for backend in self._backends)

    def direct(self, examples: Mapping[Edge, np.ndarray]) -> Compute:
        return _fastest([backend.direct(examples) for backend in self._backends], [*examples.values()])

    def takes(self, feeds: Feeds) -> bool:
        return any(backend.takes(feeds) for backend in self._backends)

    def __call__(self, feeds: Feeds) -> list[Any]:
        able = tuple(backend for backend in self._backends if backend.takes(feeds))
        key = able, *map(_size, feeds.values())
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = _fastest(able, feeds)
        return chosen(feeds)


def _fastest(computations: Sequence[Compute], data: Any) -> Compute:
    """The one whose fastest run takes least, in rounds that alternate: what else the machine does adds to some runs."""
    if len(computations) == 1:
        return computations[0]
    least = [float("inf")] * len(computations)
    end, rounds = time.perf_counter() + _SECONDS, 0
    while rounds < 3 or (rounds < _ROUNDS and time.perf_counter() < end):
        for i, compute in enumerate(computations):
            begin = time.perf_counter()
            compute(data)
            least[i] = min(least[i], time.perf_counter() - begin)
        rounds += 1
    return computations[least.index(min(least))]


def _size(feed: Any) -> Hashable:
    """Equal for data that take about the same time, powers of two apart."""
    if not isinstance(feed, Ragged):
        return feed.shape
    lengths = feed.lengths
    return feed.num_sequences.bit_length(), 0 if lengths is None else int(lengths.max(initial=0)).bit_length()


__all__ = ["exported_prediction", "faster"]
