"""python -m benchmarks.overhead: the overhead of `train_minibatch` over the bare jitted step.

The model has ten small parameters, so arithmetic takes next to no time. The bare step is the same training step written
in JAX. Both get NumPy arrays, and both times include XLA's own.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.compare import SideFailed, compare


def microseconds(rounds: int = 9, seconds: float = 0.5) -> dict[str, float]:
    """Microseconds per minibatch with `train_minibatch` and with the bare step, and the difference."""
    results = compare("tiny", {"cntkjax": sys.executable, "jax": sys.executable}, None, rounds, seconds)
    for result in results.values():
        if "error" in result:
            raise SideFailed(result["error"])
    ours, bare = (1000 * median(results[side]["milliseconds"]) for side in ("cntkjax", "jax"))
    return {"train_minibatch": ours, "bare jitted step": bare, "overhead": ours - bare}


if __name__ == "__main__":
    for name, value in microseconds().items():
        print(f"{name}: {value:.0f} µs")
