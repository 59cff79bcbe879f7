"""50 minibatches on each worker, for this package and for CNTK 2.7 alike, which recorded trajectories.npz:

    oracle/cntk27 --mpi 2 trajectories.py <folder> <name> ...        # the names of LEARNERS
"""

import sys

import numpy as np

import cntk as C

STEPS, SIZE = 50, 16
rng = np.random.RandomState(3)
X = rng.randn(STEPS * SIZE, 6).astype(np.float32)
Y = np.eye(3, dtype=np.float32)[rng.randint(0, 3, STEPS * SIZE)]
INITIAL = [(0.3 * rng.randn(*shape)).astype(np.float32) for shape in [(6, 5), (5,), (5, 3), (3,)]]
RATE = 0.02

summed, merged = C.distributed.data_parallel_distributed_learner, C.distributed.block_momentum_distributed_learner


def rate(value=RATE):
    return C.learning_parameter_schedule_per_sample(value)


def decay():
    return C.momentum_schedule_per_sample(0.95)


def two(first, second):
    first.set_as_metric_aggregator()  # CNTK demands that one is
    return [first, second]


LEARNERS = {
    "sgd": lambda p: summed(C.sgd(p, rate())),
    "momentum": lambda p: summed(C.momentum_sgd(p, rate(), decay())),
    "adam": lambda p: summed(C.adam(p, rate(RATE / 10), decay())),
    "schedule": lambda p: summed(C.sgd(p, C.learning_parameter_schedule_per_sample([RATE, RATE / 4], epoch_size=99))),
    "later": lambda p: summed(C.sgd(p, rate()), distributed_after=10 * SIZE),
    "two": lambda p: two(summed(C.sgd(p[:2], rate())), summed(C.momentum_sgd(p[2:], rate(), decay()))),
    "blocks": lambda p: merged(C.sgd(p, rate()), block_size=4 * SIZE),
    "momentum_blocks": lambda p: merged(C.momentum_sgd(p, rate(), decay()), block_size=5 * SIZE),
}


def train(learner):
    """The parameters after training, with the losses of all minibatches as the last array."""
    x, y = C.input_variable(6), C.input_variable(3)
    parameters = [C.parameter(a.shape, init=a) for a in INITIAL]
    z = C.times(C.tanh(C.times(x, parameters[0]) + parameters[1]), parameters[2]) + parameters[3]
    loss = C.cross_entropy_with_softmax(z, y)
    trainer = C.Trainer(z, (loss, C.classification_error(z, y)), LEARNERS[learner](parameters))
    rank, workers = C.distributed.Communicator.rank(), C.distributed.Communicator.num_workers()
    losses = []
    for i in range(STEPS):
        index = np.arange(SIZE * i, SIZE * (i + 1))
        if learner != "later" or i >= 10:
            index = index[rank::workers]
        trainer.train_minibatch({x: X[index], y: Y[index]})
        losses.append(trainer.previous_minibatch_loss_average)
    return [*(p.value for p in parameters), np.array(losses, np.float32)]


def main(folder, names):
    rank, workers = C.distributed.Communicator.rank(), C.distributed.Communicator.num_workers()
    results = {f"{name}_{i}": array for name in names for i, array in enumerate(train(name))}
    np.savez(f"{folder}/{workers}_{rank}.npz", **results)
    C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(LEARNERS))
