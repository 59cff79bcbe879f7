"""A worker of test_faults.py: in one of 50 minibatches, one worker fails in the way that the arguments say.

    python failing.py <failure> [<worker> <minibatch>]

Some failures come when all workers have trained, in what they end with.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import cntkjax as C


def main(failure, worker=1, minibatch=2):
    rank, size = C.distributed.Communicator.rank(), C.distributed.Communicator.num_workers()
    if failure == "version" and rank:
        install_metadata("0.1.7")
    if failure.endswith("at the end") and rank == worker:
        fail_at_the_end(failure)
    if failure == "devices" and rank:
        C.device.use_all_devices()
    x, w = C.input_variable(3), C.parameter((3, 4 if failure == "model" and rank else 2))
    loss = C.reduce_sum(C.square(C.times(x, w)))
    sgd = C.momentum_sgd([w], 0.1, 0.9) if failure == "learner" and rank else C.sgd([w], 0.1)
    learners = [C.data_parallel_distributed_learner(sgd, num_quantization_bits=3 if failure == "bits" else 32)]
    if failure == "beside":
        b = C.parameter(2)
        loss, learners = loss + C.reduce_sum(b), [*learners, C.sgd([b], 0.1)]
    trainer = C.Trainer(None, (loss, None), learners)
    for i in range(50):
        if i == minibatch and rank == worker:
            fail(failure)
        width = 5 if failure == "shape" and i == minibatch and rank == worker else 3
        trainer.train_minibatch({x: np.ones((4, width))})
        float(trainer.previous_minibatch_loss_average)
    C.distributed.Communicator.finalize()
    if failure == "longer evaluation" and rank == 0:
        time.sleep(3)
        w.value.sum()
    print(f"worker {rank} of {size} has finished")


def fail_at_the_end(failure):
    """Fail when jax ends, or "after jax", when MPI does."""
    shutdown = jax.distributed.shutdown

    def failing_shutdown():
        if "after jax" in failure:
            shutdown()
        os.kill(os.getpid(), getattr(signal, failure.split()[0]))
        shutdown()

    jax.distributed.shutdown = failing_shutdown


def install_metadata(version):
    """Let this process have another version of the package, as far as its metadata say."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    metadata = Path(folder, f"cntkjax-{version}.dist-info")
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cntkjax\nVersion: {version}\n")
    sys.path.insert(0, folder)


def fail(failure):
    if failure == "raise":
        raise KeyError("no such field")
    if failure == "interrupt":
        signal.raise_signal(signal.SIGINT)
    if failure == "end":
        sys.exit()
    if failure == "finalize":
        C.distributed.Communicator.finalize()
    if failure in ("SIGKILL", "SIGSTOP"):
        os.kill(os.getpid(), getattr(signal, failure))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
