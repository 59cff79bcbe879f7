"""python -m benchmarks.startup: how long a script takes until it trains.

Seconds of `import cntk` compared with `import jax`, of the first evaluation, and what a second process that trains the
same network compiles again after the first one has filled the compilation cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.compare import Result, environment, worker_process

TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
SCRIPTS = {
    "import jax": TIMED.format("import jax"),
    "import cntk": TIMED.format("import cntk"),
    "first eval": "import cntk as C; " + TIMED.format("C.minus([1, 2, 3], [4, 5, 6]).eval()"),
}


def seconds(rounds: int = 7) -> dict[str, float]:
    """Medians over processes that are started in interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(rounds):
            for name, script in SCRIPTS.items():
                command = [sys.executable, "-c", script]
                process = subprocess.run(
                    command, env=environment(Path(cache)), stdout=subprocess.PIPE, check=True, text=True
                )
                times[name].append(float(process.stdout))
    return {name: median(values) for name, values in times.items()}


def two_processes(network: str = "tiny", folder: Path | None = None, minibatches: int = 2) -> list[Result]:
    """The compilations of two processes that run one after the other with the same cache, and their seconds."""
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(2):
            with worker_process("cntkjax", network, sys.executable, folder, Path(scratch)) as worker:
                results.append(worker.run(minibatches))
    return results


if __name__ == "__main__":
    for name, value in seconds().items():
        print(f"{name}: {value:.2f} s")
    for name, result in zip(("first process", "second process"), two_processes("lstm64"), strict=True):
        cached, took = result["cached"], result["compile_seconds"]
        print(f"{name}: {result['programs'] - cached} programs compiled, {cached} read from the cache, {took:.2f} s")
