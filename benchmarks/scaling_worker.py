"""A worker of `python -m benchmarks scaling --links`: trains FCN5 as its input says.

A line of input is a JSON list: "32", "16", "1" or "blocks", and a number of minibatches. The answer is another one: the
seconds that they took, and the bytes that meanwhile left this host's interface (Linux), headers included.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

import cntkjax as C

PIXELS, WIDTHS, CLASSES = 784, (4096, 2048, 1024), 10
SAMPLES = 32  # of each worker in a minibatch
BLOCK = 8  # minibatches


@cache
def trainer(mode: str) -> tuple[C.Trainer, dict[C.Variable, np.ndarray]]:
    """The trainer of a kind of exchange, and this worker's minibatch."""
    x, y = C.input_variable(PIXELS), C.input_variable(CLASSES)
    z = C.layers.Sequential([*(C.layers.Dense(n, C.sigmoid) for n in WIDTHS), C.layers.Dense(CLASSES)])(x)
    sgd = C.momentum_sgd(z.parameters, 0.01, C.momentum_schedule(0.9))
    if mode == "blocks":
        learner = C.block_momentum_distributed_learner(sgd, BLOCK * SAMPLES * C.Communicator.num_workers())
    else:
        learner = C.data_parallel_distributed_learner(sgd, num_quantization_bits=int(mode))
    random = np.random.default_rng(C.Communicator.rank())
    labels = np.eye(CLASSES, dtype=np.float32)[random.integers(CLASSES, size=SAMPLES)]
    feed = {x: random.random((SAMPLES, PIXELS), np.float32), y: labels}
    return C.Trainer(z, (C.cross_entropy_with_softmax(z, y), None), learner), feed


def bytes_sent() -> int:
    """Bytes that have left this host by an interface other than the one to itself."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    counters = (line.split(":") for line in lines)
    return sum(int(numbers.split()[8]) for name, numbers in counters if name.strip() != "lo")


def main() -> None:
    """Answer each line until the input ends."""
    for line in sys.stdin:
        mode, minibatches = json.loads(line)
        learner, feed = trainer(mode)
        begin, before = time.perf_counter(), bytes_sent()
        for _ in range(minibatches):
            learner.train_minibatch(feed)
        assert np.isfinite(learner.previous_minibatch_loss_average)  # waits for the last minibatch
        learner.model.parameters[0].value.sum()  # and for its update
        print(json.dumps([time.perf_counter() - begin, bytes_sent() - before]), flush=True)
    C.Communicator.finalize()


if __name__ == "__main__":
    main()
