"""Block momentum: workers train by themselves, and after each block of samples their models are merged.

Source: Chen and Huo 2016, "Scalable training of deep learning machines by incremental block training with intra-block
parallel optimization and blockwise model-update filtering"; the details are those of CNTK 2.7 with one worker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..engine.run.handover import Captures, copied
from ..graph.cells import Cell
from . import workers
from .collectives import all_reduce
from .exchange import ExchangeProgram, one_device_each


@dataclass(frozen=True)
class MergedBlock:
    """A block of samples, and what is carried from one to the next.

    `start_values`: the model at its start; None if it has not begun.
    Units: `count` (in this block) and `samples_seen` (in total) count samples of all workers.
    """

    count: int = 0
    samples_seen: int = 0
    start_values: list[Array] | None = None
    velocity: list[Array] | None = None


@dataclass
class BlockMomentum:
    """How the models of the workers are merged, and the state carried from one block to the next.

    With G the sum over the workers of what each has changed since the start of the block: v <- m v + (1 - m) η G; the
    next block starts from that initial model + v, and with Nesterov from it + v + m v. m = exp(-n / τ) for a block of n
    samples; without τ it is 1 - 1 / workers for a block of the requested size.

    `aggregates_metrics`: it decides whose losses a trainer reports. `state`: see `MergedBlock`.

    Units: `size` and `time_constant` (τ) count samples of all workers.
    """

    size: int
    time_constant: float | None = None
    nesterov: bool = True
    resets_momentum: bool = True
    rate: float = 1.0
    after: int = 0
    aggregates_metrics: bool = False
    state: Cell[MergedBlock] = field(default_factory=lambda: Cell(MergedBlock()), repr=False)

    def begin(self, values: Sequence[Array]) -> None:
        """Keep the model at the start of a block, unless one has begun: a copy, since steps donate the arrays."""
        if self.state.value.start_values is None:
            self.state.value = replace(self.state.value, start_values=copied(list(values)))

    def merge(self, block: MergedBlock, values: Sequence[Array], merged: Captures) -> tuple[MergedBlock, list[Array]]:
        """The block after one that ends, and the model that it starts from, given this worker's values.

        `merged`: gets the results of the program, which runs if it is empty: it donates what `block` holds, so another
        call for the same block needs the same list.
        """
        if not merged:
            self._compute(block, values, merged)
        start_values, velocity = one_device_each().of_this_process(merged[0]())
        return MergedBlock(0, block.samples_seen, start_values, velocity), copied(start_values)

    def _compute(self, block: MergedBlock, values: Sequence[Array], merged: Captures) -> None:
        assert block.start_values is not None
        with jax.enable_x64(any(value.dtype == np.float64 for value in values)):
            velocity = block.velocity or [jnp.zeros_like(value) for value in values]
            key = tuple((value.shape, value.dtype) for value in values)
            factors = np.float64(self._momentum(block.count)), np.float64(self.rate), np.float64(self.nesterov)
            _merge_program()(merged, key, (block.start_values, velocity), list(values), *factors)

    def smoothed_gradients(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a checkpoint stores at the end of a block: -v. Shapes: those of the model's values."""
        velocity = self.state.value.velocity
        if velocity is None:
            return [np.zeros_like(value) for value in values]
        return [-np.asarray(v) for v in velocity]

    def load_state(self, samples_seen: int, smoothed_gradients: Sequence[np.ndarray] | None) -> None:
        """Start a block with the state of a checkpoint."""
        with jax.enable_x64(any(g.dtype == np.float64 for g in smoothed_gradients or ())):
            velocity = None if smoothed_gradients is None else [jnp.asarray(-g) for g in smoothed_gradients]
        self.state.value = MergedBlock(0, samples_seen, None, velocity)

    def _momentum(self, count: int) -> float:
        if self.time_constant is None:
            size = workers.size()
            return (1 - 1 / size) ** (count / self.size) if size > 1 else 0.0
        return math.exp(-count / self.time_constant) if self.time_constant > 0 else 0.0


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
