"""python -m benchmarks.step_walk: what Python code a training step passes: functions, files, calls, and its time.

The model is a Dense layer with two parameters. Calls are those of a later minibatch, when all has been compiled. With
`--list`, the functions in the order in which they are first called.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from types import CodeType, FrameType

import numpy as np

import cntkjax as C

PACKAGE = Path(C.__file__).parent


def trainer_and_data() -> tuple[C.Trainer, dict[C.Variable, np.ndarray]]:
    """A trainer of a Dense layer, and a minibatch."""
    x, y = C.input_variable(4), C.input_variable(3)
    model = C.layers.Dense(3)(x)
    trainer = C.Trainer(model, C.squared_error(model, y), C.sgd(model.parameters, 0.1))
    return trainer, {x: np.ones((8, 4), np.float32), y: np.ones((8, 3), np.float32)}


def calls_of_a_step() -> Counter[CodeType]:
    """How often a step calls each function of the package, in the order of first calls."""
    trainer, minibatch = trainer_and_data()
    for _ in range(10):
        trainer.train_minibatch(minibatch)
    calls: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and PACKAGE in Path(frame.f_code.co_filename).parents:
            calls[frame.f_code] += 1

    sys.setprofile(count)
    try:
        trainer.train_minibatch(minibatch)
    finally:
        sys.setprofile(None)
    return calls


def microseconds(steps: int = 200, rounds: int = 5) -> float:
    """Processor time that this thread spends on a step."""
    trainer, minibatch = trainer_and_data()
    trainer.train_minibatch(minibatch)
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(steps):
            trainer.train_minibatch(minibatch)
        times.append((time.thread_time() - begin) / steps)
    return 1e6 * median(times)


if __name__ == "__main__":
    calls = calls_of_a_step()
    if "--list" in sys.argv:
        for code, number in calls.items():
            place = f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_firstlineno}"
            print(f"{number:4} {place} {code.co_qualname}")
    files = {code.co_filename for code in calls}
    print(f"{len(calls)} functions in {len(files)} files, {calls.total()} calls, {microseconds():.0f} µs")
