"""Block momentum: workers train by themselves, and after each block of samples their models are merged.

Source: Chen and Huo 2016, "Scalable training of deep learning machines by incremental block training with intra-block
parallel optimization and blockwise model-update filtering"; the details are those of CNTK 2.7 with one worker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import mpi


@dataclass
class BlockMomentum:
    """How the models of the workers are merged, and what is kept from one block to the next.

    With G the sum of what the workers have changed in the model that the block began with: v <- m v + (1 - m) η G; the
    next block begins with that model + v, and Nesterov's with + v + m v. m = exp(-n / τ) for a block of n samples;
    without τ it is 1 - 1 / workers for a block of the size asked for.

    Units: `size`, `time_constant` (τ), `count` (in this block) and `seen` (in all) count samples of all workers.
    """

    size: int
    time_constant: float | None = None
    nesterov: bool = True
    resets_momentum: bool = True
    rate: float = 1.0
    after: int = 0
    count: int = 0
    seen: int = 0
    begun_with: list[np.ndarray] | None = None
    velocity: list[np.ndarray] | None = None

    def ends(self, samples: int, seen: int) -> bool:
        """Count the samples of a step of all workers, the last of `seen`; whether the block ends with it."""
        if seen >= self.after:
            self.count += samples
        return self.count >= self.size

    def merged(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The model that the next block begins with, from this worker's."""
        assert self.begun_with is not None
        m = self._momentum()
        steps = [mpi.summed(value - begun) for value, begun in zip(values, self.begun_with, strict=True)]
        before = [np.zeros_like(step) for step in steps] if self.velocity is None else self.velocity
        self.velocity = [_as(m * v + (1 - m) * self.rate * step, v) for v, step in zip(before, steps, strict=True)]
        ahead = 1 + m if self.nesterov else 1
        self.begun_with = [_as(b + ahead * v, b) for b, v in zip(self.begun_with, self.velocity, strict=True)]
        self.count = 0
        return self.begun_with

    def gradients(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a checkpoint keeps, after the end of a block: -v, of the form of the model's values."""
        return [np.zeros_like(value) for value in values] if self.velocity is None else [-v for v in self.velocity]

    def go_on(self, seen: int, gradients: Sequence[np.ndarray] | None) -> None:
        """Begin a block with the model of a checkpoint that has seen so many samples."""
        self.seen, self.count, self.begun_with = seen, 0, None
        self.velocity = None if gradients is None else [-g for g in gradients]

    def _momentum(self) -> float:
        if self.time_constant is None:
            workers = mpi.size()
            return (1 - 1 / workers) ** (self.count / self.size) if workers > 1 else 0.0
        return math.exp(-self.count / self.time_constant) if self.time_constant > 0 else 0.0


def _as(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    return array.astype(like.dtype, copy=False)
