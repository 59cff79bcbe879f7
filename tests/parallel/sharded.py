"""A worker of test_sharding.py: trains with whole and with divided learner state.

    python sharded.py <folder> <devices of each worker> <names of LEARNERS or WAYS> ...

It saves checkpoints of adam, and continues from those of half as many workers.
"""

import os
import sys
from pathlib import Path

DEVICES = int(sys.argv[2]) if __name__ == "__main__" else 1
if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

import cntk as C  # noqa: E402
from cntkjax.graph.proxy import unwrap  # noqa: E402

STEPS, SIZE, WORDS = 4, 16, 200
rng = np.random.default_rng(0)
X = rng.normal(size=(STEPS * SIZE, 5)).astype(np.float32)
INDICES = rng.integers(0, WORDS, STEPS * SIZE)
Y = rng.normal(size=(STEPS * SIZE, 3)).astype(np.float32)
NORM = {"gradient_clipping_threshold_per_sample": 0.05, "gradient_clipping_with_truncation": False}
LEARNERS = {
    "clipped": lambda p: C.momentum_sgd(p, 0.1, 0.9, l2_regularization_weight=0.1, **NORM),
    "adam": lambda p: C.adam(p, 0.01, 0.9),
    "normalized": lambda p: C.rmsprop(p, 0.01, 0.9, 1.2, 0.7, 10, 0.001),
    "noisy": lambda p: C.sgd(p, 0.1, l1_regularization_weight=0.01, gaussian_noise_injection_std_dev=0.01),
}
WAYS = {"16 bits": {"num_quantization_bits": 16}, "unequal": {}, "later": {"distributed_after": SIZE}}  # with adam


def make(learner, **options):
    """A trainer of a network with an embedding of many rows, and layers of few."""
    C.cntk_py.set_fixed_random_seed(1)
    x, word, y = C.input_variable(5), C.input_variable(WORDS, is_sparse=True), C.input_variable(3)
    hidden = C.layers.Dense(37, C.tanh)(x)
    z = C.layers.Dense(3)(C.splice(hidden, C.layers.Embedding(4)(word)))
    learners = C.data_parallel_distributed_learner(LEARNERS[learner](z.parameters), **options)
    return (x, word, y), C.Trainer(z, (C.squared_error(z, y), None), learners)


def train(inputs, trainer, begin, end, way=""):
    """Steps on shares of equal sizes, or, unequal, of 1, 2, ... and what remains; later, the first is on all data."""
    rank, workers = C.Communicator.rank(), C.Communicator.num_workers()
    for i in range(begin, end):
        index = np.arange(SIZE * i, SIZE * (i + 1))
        share = np.split(index, np.cumsum(range(1, workers)))[rank] if way == "unequal" else index[rank::workers]
        share = index if way == "later" and i == 0 else share
        data = X[share], C.Value.one_hot(INDICES[share].tolist(), WORDS), Y[share]
        assert trainer.train_minibatch(dict(zip(inputs, data, strict=True)))


def state_bytes(trainer):
    """Those of the learner's state on one device."""
    state = jax.tree.leaves(unwrap(trainer).learners[0].optax_state)
    return sum(array.addressable_data(0).nbytes for array in state)


def main(folder, names):
    rank, workers, results = C.Communicator.rank(), C.Communicator.num_workers(), {}
    if DEVICES > 1:
        C.device.use_all_devices()

    def run(name, checkpoint=""):
        """With whole state, whose checkpoint is named 0, and with divided state, 1."""
        for shard in 0, 1:
            inputs, trainer = make(name if name in LEARNERS else "adam", shard_state=bool(shard), **WAYS.get(name, {}))
            if checkpoint:
                trainer.restore_from_checkpoint(checkpoint)
            train(inputs, trainer, 2 if checkpoint else 0, STEPS, name)
            results.update({f"{name} {shard} {i}": p.value for i, p in enumerate(trainer.model.parameters)})
            results[f"{name} {shard} bytes"] = state_bytes(trainer)
            if name == "adam":
                trainer.save_checkpoint(str(folder / f"{workers} {shard}"))

    for name in names:
        run(name)
    if workers > 1:
        run("restored", str(folder / f"{workers // 2} 1"))
    np.savez(folder / f"{workers}_{rank}.npz", **results)
    C.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
