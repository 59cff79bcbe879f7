"""A worker of test_launch.py: trains for eight minibatches, with checkpoints, and fails as the arguments say."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import cntkjax as C

X = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)


def train(folder, failure=""):
    rank, size = C.distributed.Communicator.rank(), C.distributed.Communicator.num_workers()
    x, w = C.input_variable(3), C.parameter((3, 2), init=0.5)
    loss = C.reduce_sum(C.square(C.times(x, w) - 1))
    learner = C.data_parallel_distributed_learner(C.momentum_sgd([w], 0.05, 0.9))
    trainer = C.Trainer(None, (loss, None), learner)
    checkpoint = folder / "checkpoint"
    if checkpoint.exists():
        print("restored", trainer.restore_from_checkpoint(checkpoint))
    while (samples := trainer.total_number_of_samples_seen) < 32:
        if samples == 16 and rank == 1:
            fail(failure, folder)
        trainer.train_minibatch({x: X[samples + rank : samples + 4 : size]})
        trainer.save_checkpoint(checkpoint)
    np.save(folder / f"{rank}.npy", w.value)
    print(f"worker {rank} of {size} has finished")


def fail(failure, folder):
    if failure == "raise":
        raise KeyError("no such field")
    if failure == "exit":
        os._exit(3)
    if failure == "once" and not (folder / "failed").exists():
        (folder / "failed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def wait(folder):
    """Each worker starts a process, prints the numbers of both, and waits."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("processes", os.getpid(), child.pid)
    time.sleep(600)


if __name__ == "__main__":
    {"train": train, "wait": wait}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
