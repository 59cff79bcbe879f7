"""python -m benchmarks.overhead: the overhead of `train_minibatch` over the bare jitted step.

The model has ten small parameters, so arithmetic takes next to no time. The bare step is the same training step written
in JAX. Both get NumPy arrays, and both times include XLA's own. A third figure is what it costs to hand state over as
interrupts and threads require (engine/run/handover.py), in processor time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import jax
import numpy as np

from benchmarks.compare import SideFailed, compare
from cntkjax.engine.run.handover import Captures, captured, hand_over
from cntkjax.graph.cells import Cell, Changes


def microseconds(rounds: int = 9, seconds: float = 0.5) -> dict[str, float]:
    """Microseconds per minibatch with `train_minibatch` and with the bare step, and the difference."""
    results = compare("tiny", {"cntkjax": sys.executable, "jax": sys.executable}, None, rounds, seconds)
    for result in results.values():
        if "error" in result:
            raise SideFailed(result["error"])
    ours, bare = (1000 * median(results[side]["milliseconds"]) for side in ("cntkjax", "jax"))
    return {"train_minibatch": ours, "bare jitted step": bare, "overhead": ours - bare}


def handover_microseconds(arrays: int = 20, rounds: int = 15, steps: int = 2000) -> float:
    """Processor time that handing over so many donated arrays takes, above just assigning them. Units: µs per step."""

    def step(state: list[jax.Array]) -> list[jax.Array]:
        return [array * 0.999 for array in state]

    assigned = jax.jit(step, donate_argnums=0)
    handed = jax.jit(lambda state: captured(step(state)), donate_argnums=0)
    cells = [Cell(jax.device_put(np.ones(4, np.float32))) for _ in range(arrays)]

    def assign(state: list[jax.Array]) -> None:
        for cell, array in zip(cells, state, strict=True):
            cell.value = array

    def state() -> list[jax.Array]:
        return [cell.value for cell in cells]

    def compute(outputs: Captures) -> None:
        outputs.append(handed(state()))

    def conclude(state: list[jax.Array]) -> tuple[Changes, None]:
        return dict(zip(cells, state, strict=True)), None

    def per_step(one_step: Callable[[], None]) -> float:
        begin = time.process_time()
        for _ in range(steps):
            one_step()
        return 1e6 * (time.process_time() - begin) / steps

    return median(
        per_step(lambda: hand_over(compute, conclude)) - per_step(lambda: assign(assigned(state())))
        for _ in range(rounds)
    )


if __name__ == "__main__":
    for name, value in microseconds().items():
        print(f"{name}: {value:.0f} µs")
    print(f"handing state over: {handover_microseconds():.1f} µs")
