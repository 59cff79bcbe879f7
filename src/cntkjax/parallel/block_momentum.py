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
    """How the models of the workers are merged, and the state carried from one block to the next.

    With G the sum over the workers of what each has changed since the start of the block: v <- m v + (1 - m) η G; the
    next block starts from that initial model + v, and with Nesterov from it + v + m v. m = exp(-n / τ) for a block of n
    samples; without τ it is 1 - 1 / workers for a block of the requested size.

    `start_values`: the model at the start of the block; None between blocks.

    Units: `size`, `time_constant` (τ), `count` (in this block) and `samples_seen` (in total) count samples of all
           workers.
    """

    size: int
    time_constant: float | None = None
    nesterov: bool = True
    resets_momentum: bool = True
    rate: float = 1.0
    after: int = 0
    count: int = 0
    samples_seen: int = 0
    start_values: list[np.ndarray] | None = None
    velocity: list[np.ndarray] | None = None

    def ends(self, samples: int, samples_seen: int) -> bool:
        """Count the samples of a step of all workers, the last of `samples_seen`; whether it ends the block."""
        if samples_seen >= self.after:
            self.count += samples
        return self.count >= self.size

    def merge(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The model that the next block starts from, given this worker's."""
        assert self.start_values is not None
        m = self._momentum()
        changes = [mpi.all_reduce(value - start) for value, start in zip(values, self.start_values, strict=True)]
        old = [np.zeros_like(change) for change in changes] if self.velocity is None else self.velocity
        self.velocity = [
            _cast(m * v + (1 - m) * self.rate * change, v) for v, change in zip(old, changes, strict=True)
        ]
        scale = 1 + m if self.nesterov else 1
        self.start_values = [_cast(w + scale * v, w) for w, v in zip(self.start_values, self.velocity, strict=True)]
        self.count = 0
        return self.start_values

    def smoothed_gradients(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a checkpoint stores at the end of a block: -v. Shapes: those of the model's values."""
        return [np.zeros_like(value) for value in values] if self.velocity is None else [-v for v in self.velocity]

    def load_state(self, samples_seen: int, smoothed_gradients: Sequence[np.ndarray] | None) -> None:
        """Start a block with the state of a checkpoint."""
        self.samples_seen, self.count, self.start_values = samples_seen, 0, None
        self.velocity = None if smoothed_gradients is None else [-g for g in smoothed_gradients]

    def _momentum(self) -> float:
        if self.time_constant is None:
            workers = mpi.size()
            return (1 - 1 / workers) ** (self.count / self.size) if workers > 1 else 0.0
        return math.exp(-self.count / self.time_constant) if self.time_constant > 0 else 0.0


def _cast(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    return array.astype(like.dtype, copy=False)
