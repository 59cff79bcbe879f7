"""The program of each worker in test_joined.py: prints the programs that it compiled, and what it has learned."""

import json

import numpy as np

import cntk as C
from cntkjax.engine.run.compilations import report


def train(sizes):
    """Steps on so many samples; returns the programs of the steps, and the parameters."""
    before = len(report().programs)
    x, y = C.input_variable(4), C.input_variable(2)
    z = C.layers.Dense(2, init=C.glorot_uniform(seed=1))(x)
    learner = C.distributed.data_parallel_distributed_learner(C.momentum_sgd(z.parameters, 0.1, 0.9))
    trainer = C.Trainer(z, (C.squared_error(z, y), None), learner)
    rng, losses = np.random.default_rng(C.Communicator.rank()), []
    for n in sizes:
        trainer.train_minibatch({x: rng.normal(size=(n, 4)), y: rng.normal(size=(n, 2))} if n else {})
        losses.append(trainer.previous_minibatch_loss_average if trainer.previous_minibatch_sample_count else 0)
    names = [program.text for program in report().programs[before:]]
    return [name for name in names if "state" not in name], [p.value.tolist() for p in z.parameters], losses


def main():
    rank = C.Communicator.rank()
    equal, unequal = train([4, 4, 4]), train([4, 4 * rank, 4])
    print(json.dumps([equal, unequal]))
    C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main()
