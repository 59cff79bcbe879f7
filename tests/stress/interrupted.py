"""A worker of test_ranks.py: trains undisturbed, then once more until an interrupt, and compares its state.

    python interrupted.py <kind of training> <rank that is interrupted> <source of interrupts> <seed>

An interrupt of one worker ends all. It leaves its own state as before a step or after it. A process with several
devices goes on.
"""

import os
import random
import sys

import cntkjax as C
from cntkjax.parallel.workers import WorkerError
from tests.stress.training import Training, assert_same, duration, interrupted

STEPS = 24
KINDS = {
    "one program": {"distributed": "data"},
    "two programs": {"distributed": "data", "sizes": (8, 5)},
    "blocks": {"distributed": "blocks"},
    "UserLearner": {"distributed": "data", "second": "UserLearner"},
    "devices": {"sizes": (8, 1)},
}


def main(kind, interrupted_rank, source, seed):
    rank = C.Communicator.rank()
    if kind == "devices":
        C.device.use_all_devices()
    options = {**KINDS[kind], "first_minibatch": 1001 * rank}
    undisturbed = Training(**options)
    states, seconds = [undisturbed.state()], []
    for _ in range(STEPS):
        seconds.append(duration(undisturbed.train))
        states.append(undisturbed.state())
    rng, training, count = random.Random(f"{seed} {rank}"), Training(**options), 0
    for _ in range(4):
        training.train()
    try:
        while training.steps < STEPS:
            if interrupted_rank != rank:
                training.train()
                continue
            count += interrupted(source, rng.uniform(0, 3 * sorted(seconds)[STEPS // 2]), training.train)
            if count and C.Communicator.num_workers() > 1:
                break
    except WorkerError:
        pass
    assert_same(training.state(), states[training.steps])
    print(f"worker {rank} is as after step {training.steps}, after {count} interrupts", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
