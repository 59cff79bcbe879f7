"""Parameters, learners and their steps, for tests of learners alone."""

import numpy as np

import cntkjax as C
from cntkjax import learners as L


def Weights(value, dtype=np.float32, name="w"):
    return C.parameter(init=np.array(value, dtype), name=name)


RMSPROP = {"gamma": 0.9, "inc": 1.5, "dec": 0.5, "max": 0.05, "min": 0.001}
MAKE = {
    "sgd": lambda p, **o: L.sgd(p, 0.1, **o),
    "momentum_sgd": lambda p, **o: L.momentum_sgd(p, 0.1, 0.9, **o),
    "nesterov": lambda p, **o: L.nesterov(p, 0.1, 0.9, **o),
    "adagrad": lambda p, **o: L.adagrad(p, 0.1, **o),
    "adadelta": lambda p, **o: L.adadelta(p, **o),
    "rmsprop": lambda p, **o: L.rmsprop(p, 0.1, **RMSPROP, **o),
    "fsadagrad": lambda p, **o: L.fsadagrad(p, 0.1, 0.9, **o),
    "adam": lambda p, **o: L.adam(p, 0.1, 0.9, **o),
    "adamax": lambda p, **o: L.adam(p, 0.1, 0.9, adamax=True, **o),
}


def steps(learner, gradient, sizes, **options):
    for n in sizes:
        learner.update({p: np.full(p.shape, gradient * n, p.dtype) for p in learner.parameters}, n, **options)
    return learner.parameters[0].value
