"""Means and deviations over all data, to normalize inputs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ops import alias
from ..ops.functions import Function
from ..train._sources import SessionSource, next_minibatch
from ..variables import Variable
from ._criteria import inputs_by_name

_MINIBATCH = 16384  # samples
_LEAST_DEVIATION = 1e-10


@dataclass(frozen=True)
class Moments:
    """The mean of each element of a node over all samples, and the inverse of its standard deviation."""

    mean: np.ndarray
    inverse_deviation: np.ndarray


def moments(
    nodes: Sequence[Variable | Function], source: SessionSource, inputs: Mapping[Any, Any] | None = None
) -> list[Moments]:
    """Those of each node over the data of a source that ends, such as a MinibatchSource with ``max_sweeps=1``.

    `inputs`: {input of the nodes: stream}, by default those of the same names. Sums are in double precision.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, name="x")
    >>> source = C.io.MinibatchSourceFromData({"x": np.float32([[1, 2], [3, 2]])}, max_samples=2)
    >>> moments([x], source)[0].mean.tolist()
    [2.0, 2.0]
    """
    values: list[Any] = [alias(node) for node in nodes]
    streams = inputs_by_name(values, source) if inputs is None else inputs
    sums = [_Sums(value.output) for value in values]
    while minibatch := next_minibatch(source, _MINIBATCH, streams):
        for total, value in zip(sums, values, strict=True):
            total.add(value.eval({v: minibatch[v] for v in value.arguments}))
    return [total.moments() for total in sums]


class _Sums:
    """Sums over samples of a variable, in double precision."""

    def __init__(self, variable: Any) -> None:
        self._shape, self._dtype = variable.shape, variable.dtype
        self._count, self._sum, self._squares = 0, np.zeros(()), np.zeros(())

    def add(self, value: Any) -> None:
        """Count the samples of a minibatch: an array, or a list with one of each sequence."""
        for part in value if isinstance(value, list) else [value]:
            dense = np.asarray(part.todense() if hasattr(part, "todense") else part, np.float64)
            rows = dense.reshape(-1, int(np.prod(self._shape)))
            self._count += len(rows)
            self._sum = self._sum + rows.sum(0)
            self._squares = self._squares + (rows**2).sum(0)

    def moments(self) -> Moments:
        """Their mean and inverse deviation."""
        mean = self._sum / self._count
        deviation = np.sqrt(np.maximum(self._squares / self._count - mean**2, 0))
        inverse = 1 / np.maximum(deviation, _LEAST_DEVIATION)
        return Moments(*(np.asarray(each, self._dtype).reshape(self._shape) for each in (mean, inverse)))
