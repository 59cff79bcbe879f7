"""A worker of test_quantized_training.py: trains a network with gradients of 32, 16 and 1 bits.

    python quantized.py <folder>
"""

import sys
from pathlib import Path

import numpy as np

import cntkjax as C
from cntkjax.graph.proxy import unwrap

CLASSES, WIDTH, SIZE = 10, 64, 64
rng = np.random.default_rng(0)
LABELS = rng.integers(0, CLASSES, 20 * SIZE)
X = (rng.normal(size=(CLASSES, WIDTH))[LABELS] + 2 * rng.normal(size=(len(LABELS), WIDTH))).astype(np.float32)
Y = np.eye(CLASSES, dtype=np.float32)[LABELS]


def network(bits):
    """The inputs and a trainer."""
    x, y = C.input_variable(WIDTH), C.input_variable(CLASSES)
    hidden = C.layers.Dense(96, C.tanh, init=C.glorot_uniform(seed=1))(x)
    z = C.layers.Dense(CLASSES, init=C.glorot_uniform(seed=2))(hidden)
    loss = C.cross_entropy_with_softmax(z, y)
    rate = C.learning_parameter_schedule_per_sample(0.002)
    learner = C.momentum_sgd(z.parameters, rate, C.momentum_schedule(0.9))
    trainer = C.Trainer(z, (loss, None), C.data_parallel_distributed_learner(learner, num_quantization_bits=bits))
    return x, y, trainer


def train(x, y, trainer, begin, end):
    """The mean loss of these minibatches."""
    rank, workers = C.distributed.Communicator.rank(), C.distributed.Communicator.num_workers()
    losses = []
    for i in range(begin, end):
        index = (np.arange(SIZE) + SIZE * i) % len(X)
        trainer.train_minibatch({x: X[index][rank::workers], y: Y[index][rank::workers]})
        losses.append(trainer.previous_minibatch_loss_average)
    return np.mean(losses)


def main(folder):
    rank, results = C.distributed.Communicator.rank(), {}
    for bits in 32, 16, 1:
        x, y, trainer = network(bits)
        train(x, y, trainer, 0, 280)
        results[f"loss_{bits}"] = train(x, y, trainer, 280, 300)
        results |= {f"parameter_{bits}_{i}": p.value for i, p in enumerate(trainer.model.parameters)}
    trainer.save_checkpoint(folder / "one_bit")
    before = unwrap(trainer).distributed.quantization_errors()
    train(x, y, trainer, 300, 320)
    continued = [p.value for p in trainer.model.parameters]
    x, y, trainer = network(1)
    trainer.restore_from_checkpoint(folder / "one_bit")
    restored = [p.value for p in trainer.model.parameters]
    train(x, y, trainer, 300, 320)
    resumed = [p.value for p in trainer.model.parameters]
    trainer.restore_from_checkpoint(folder / "one_bit")
    after = unwrap(trainer).distributed.quantization_errors()
    programs = C.debugging.compilation_report().programs
    train(x, y, trainer, 300, 320)
    again = [p.value for p in trainer.model.parameters]
    results["programs_after_restoring"] = len(C.debugging.compilation_report().programs) - len(programs)
    everything = {
        "before": before, "after": after, "restored": restored, "continued": continued, "resumed": resumed,
        "again": again,
    }
    for name, arrays in everything.items():
        results |= {f"{name}_{i}": array for i, array in enumerate(arrays)}
    np.savez(folder / f"{rank}.npz", **results)
    C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
