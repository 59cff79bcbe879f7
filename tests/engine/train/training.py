"""A small network, and its training with options beyond those of CNTK."""

import numpy as np

import cntkjax as C

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 4)).astype(np.float32), RNG.normal(size=(24, 3)).astype(np.float32)
SIZES = [4, 2, 5, 1, 6, 6]


# The seeds matter: with others the first step in float16 overflows and is skipped.
def network(learner=lambda p: C.adam(p, C.learning_parameter_schedule_per_sample(0.01), 0.9), depth=1, **options):
    x, y = C.input_variable(4), C.input_variable(3)
    layers = [C.layers.Dense(8, C.tanh, init=C.glorot_uniform(seed=3 + i)) for i in range(depth)]
    z = C.layers.Sequential([*layers, C.layers.Dense(3, init=C.glorot_uniform(seed=99))])(x)
    loss = C.squared_error(z, y)
    return C.Trainer(z, (loss, loss), learner(z.parameters), **options), x, y


def values(trainer):
    return [p.value for p in trainer.loss_function.parameters]


def train(training, sizes, begin=0):
    trainer, x, y = training
    for n in sizes:
        assert trainer.train_minibatch({x: X[begin : begin + n], y: Y[begin : begin + n]}, is_sweep_end=begin == 11)
        begin += n
    return values(trainer)
