"""The program of each worker in test_training_against_cpu.py: prints the parameters after four steps."""

import json

import numpy as np

import cntkjax as C

WORKERS = 2


def trained(rank, size):
    """The parameters after four steps in which each worker has its share of the minibatch."""
    random = np.random.default_rng(1)
    x, y = C.input_variable(6), C.input_variable(3)
    z = C.layers.Sequential([C.layers.Dense(5, C.tanh), C.layers.Dense(3)])(x)
    learner = C.momentum_sgd(z.parameters, 0.1, 0.9)
    if size > 1:
        learner = C.data_parallel_distributed_learner(learner)
    trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [learner])
    for _ in range(4):
        data = random.standard_normal((8, 6)).astype(np.float32)
        labels = np.eye(3, dtype=np.float32)[random.integers(3, size=8)]
        trainer.train_minibatch({x: data[rank::size], y: labels[rank::size]})
    return [np.asarray(p.value) for p in z.parameters]


if __name__ == "__main__":
    communicator = C.Communicator
    values = trained(communicator.rank(), communicator.num_workers())
    print(json.dumps([v.tolist() for v in values]))
    communicator.finalize()
