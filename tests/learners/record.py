"""Writes trajectories.json. Run with CNTK 2.7, in the root of the repository: ``python -m tests.learners.record``."""
import json
import os

import numpy as np

from tests.learners.cases import CALLS, SIZES, START, SWEEP_ENDS, gradient


def run(C, call, dtype):
    """Values, rate, and whether it was taken, for each step."""
    w = C.parameter(init=np.array(START, dtype), dtype=dtype)
    learner = eval(call, {"C": C, "params": [w]})
    steps = []
    for step, size in enumerate(SIZES):
        rate = learner.learning_rate()
        taken = learner.update({w: np.array(gradient(step), dtype)}, size, step in SWEEP_ENDS)
        steps.append([w.value.ravel().tolist(), rate, taken])
    return steps


def record(C, call):
    """All steps in double precision, and where single precision ends."""
    return {"float64": run(C, call, np.float64), "float32": run(C, call, np.float32)[-1:]}


if __name__ == "__main__":
    import cntk

    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "trajectories.json"), "w") as f:
        lines = [f"{json.dumps(call)}: {json.dumps(record(cntk, call))}" for call in CALLS]
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
