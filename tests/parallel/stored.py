"""A worker of test_stored.py: trains on all workers, and prints which programs were stored, and what it learned."""

import json

import numpy as np

import cntk as C
from cntkjax.engine.run.compilations import report


def main():
    x, y = C.input_variable(5), C.input_variable(2)
    z = C.layers.Dense(2, init=C.glorot_uniform(seed=1))(x)
    learner = C.distributed.data_parallel_distributed_learner(C.adam(z.parameters, 0.01, 0.9))
    trainer, rank = C.Trainer(z, (C.squared_error(z, y), None), learner), C.Communicator.rank()
    rng = np.random.default_rng(rank)
    for n in (4, 4, 4 * rank):
        trainer.train_minibatch({x: rng.normal(size=(n, 5)), y: rng.normal(size=(n, 2))} if n else {})
    programs = {program.text: program.stored for program in report().programs}
    print(json.dumps([programs, [p.value.tolist() for p in z.parameters]]))
    C.Communicator.finalize()


if __name__ == "__main__":
    main()
