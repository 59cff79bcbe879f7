"""A worker of test_workers.py: prints its process, trains for 80 minibatches with checkpoints, and saves the result.

    python workers.py <folder>
"""

import os
import sys
import time
from pathlib import Path

MINIBATCHES, SIZE = 80, 8


def main(folder):
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["CNTKJAX_RANK"]
    print(f"worker {rank} is process {os.getpid()}", flush=True)

    import numpy as np

    import cntkjax as C

    x, w = C.input_variable(3), C.parameter((3, 2), init=0.5)
    loss = C.reduce_sum(C.square(C.times(x, w) - 1))
    learner = C.data_parallel_distributed_learner(C.momentum_sgd([w], 0.05, 0.9))
    trainer, checkpoint = C.Trainer(None, (loss, None), learner), folder / "checkpoint"
    if checkpoint.exists():
        trainer.restore_from_checkpoint(checkpoint)
    data = np.random.default_rng(0).normal(size=(MINIBATCHES * SIZE, 3)).astype(np.float32)
    while (samples := trainer.total_number_of_samples_seen) < len(data):
        trainer.train_minibatch({x: data[samples + int(rank) : samples + SIZE : C.Communicator.num_workers()]})
        time.sleep(0.02)  # so that training takes about as long as starting
        if samples % (10 * SIZE) == 0:
            trainer.save_checkpoint(checkpoint)
    np.save(folder / f"{rank}.npy", w.value)
    C.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
