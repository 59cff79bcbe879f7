"""Block momentum: workers train by themselves, and after each block of samples their models are merged.

Source: Chen and Huo 2016, "Scalable training of deep learning machines by incremental block training with intra-block
parallel optimization and blockwise model-update filtering"; the details are those of CNTK 2.7 with one worker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..engine.run.handover import Captures, copied
from . import workers
from .collectives import all_reduce
from .exchange import ExchangeProgram, one_device_each


@dataclass
class BlockMomentum:
    """How the models of the workers are merged, and the state carried from one block to the next.

    With G the sum over the workers of what each has changed since the start of the block: v <- m v + (1 - m) η G; the
    next block starts from that initial model + v, and with Nesterov from it + v + m v. m = exp(-n / τ) for a block of n
    samples; without τ it is 1 - 1 / workers for a block of the requested size.

    `start_values`: the model at the start of the block; None between blocks. `aggregates_metrics`: it decides whose
    losses a trainer reports.

    Units: `size`, `time_constant` (τ), `count` (in this block) and `samples_seen` (in total) count samples of all
           workers.
    """

    size: int
    time_constant: float | None = None
    nesterov: bool = True
    resets_momentum: bool = True
    rate: float = 1.0
    after: int = 0
    aggregates_metrics: bool = False
    count: int = 0
    samples_seen: int = 0
    start_values: list[Array] | None = None
    velocity: list[Array] | None = None

    def count_after(self, samples: int, samples_seen: int) -> int:
        """`count` after a step on so many samples of all workers, the last of `samples_seen`."""
        return self.count + samples if samples_seen >= self.after else self.count

    def begin(self, values: Sequence[Array]) -> None:
        """Keep the model at the start of a block, unless one has begun: a copy, since steps donate the arrays."""
        if self.start_values is None:
            self.start_values = copied(list(values))

    def merge(self, values: Sequence[Array], merged: Captures) -> list[Array]:
        """End the block: the model that the next one starts from, given this worker's; computed on the device.

        It may be repeated with the same list `merged`, which is empty at first.
        """
        if not merged:
            self._compute(values, merged)
        self.start_values, self.velocity = one_device_each().of_this_process(merged[0]())
        self.count = 0
        return copied(self.start_values)

    def _compute(self, values: Sequence[Array], merged: Captures) -> None:
        assert self.start_values is not None
        with jax.enable_x64(any(value.dtype == np.float64 for value in values)):
            velocity = self.velocity or [jnp.zeros_like(value) for value in values]
            key = tuple((value.shape, value.dtype) for value in values)
            factors = np.float64(self._momentum()), np.float64(self.rate), np.float64(self.nesterov)
            _merge_program()(merged, key, (self.start_values, velocity), list(values), *factors)

    def smoothed_gradients(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a checkpoint stores at the end of a block: -v. Shapes: those of the model's values."""
        if self.velocity is None:
            return [np.zeros_like(value) for value in values]
        return [-np.asarray(v) for v in self.velocity]

    def load_state(self, samples_seen: int, smoothed_gradients: Sequence[np.ndarray] | None) -> None:
        """Start a block with the state of a checkpoint."""
        self.samples_seen, self.count, self.start_values = samples_seen, 0, None
        with jax.enable_x64(any(g.dtype == np.float64 for g in smoothed_gradients or ())):
            self.velocity = None if smoothed_gradients is None else [jnp.asarray(-g) for g in smoothed_gradients]

    def _momentum(self) -> float:
        if self.time_constant is None:
            count = workers.size()
            return (1 - 1 / count) ** (self.count / self.size) if count > 1 else 0.0
        return math.exp(-self.count / self.time_constant) if self.time_constant > 0 else 0.0


@cache
def _merge_program() -> ExchangeProgram:
    return ExchangeProgram(_merge, one_device_each())


def _merge(
    before: tuple[list[Array], list[Array]], values: list[Array], momentum: Array, rate: Array, nesterov: Array
) -> tuple[list[Array], list[Array]]:
    """Model and velocity after a block, from those before it and the values of each worker."""
    start_values, old = before
    changes = all_reduce([value - start for value, start in zip(values, start_values, strict=True)])
    velocity = [
        (momentum * v + (1 - momentum) * rate * change).astype(v.dtype)
        for v, change in zip(old, changes, strict=True)
    ]
    scale = 1 + momentum * nesterov
    return [(w + scale * v).astype(w.dtype) for w, v in zip(start_values, velocity, strict=True)], velocity
