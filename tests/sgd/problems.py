"""A small problem that tests train, and what they compute beside it."""

from __future__ import annotations

import itertools

import numpy as np

import cntkjax as C
from cntkjax.graph.proxy import unwrap
from cntkjax.sgd import SGD, Epoch
from cntkjax.sgd._run import BlockRun

N = 24
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + 0.1).astype(np.float32)
RATE = {"learningRatesPerSample": 0.01}


def regression(dtype=np.float32):
    """The squared error of a linear model, whose weights are zero; [x, y] are its arguments."""
    x, y = C.input_variable(3, dtype=dtype, name="x"), C.input_variable(1, dtype=dtype, name="y")
    w = C.parameter((3, 1), init=0, dtype=dtype, name="w")
    return C.squared_error(C.times(x, w), y, name="loss")


_widths = itertools.count(5)


def new_regression():
    """The same with a number of features that no test has used before: nothing is compiled for it yet."""
    width = next(_widths)
    x, y = C.input_variable(width, name="x"), C.input_variable(1, name="y")
    data = np.random.default_rng(width).normal(size=(N, width)).astype(np.float32)
    return C.squared_error(C.times(x, C.parameter((width, 1), init=0)), y), (data, Y)


def gradients(w, rows):
    """The gradient of each sample's error. Shapes: w [3]; the result is [rows, 3]."""
    x, y = X[rows].astype(float), Y[rows, 0].astype(float)
    return 2 * (x @ w - y)[:, None] * x


def _block(block):
    """Two epochs in minibatches of 4, without momentum unless the block has one."""
    momentum = {} if any(key.startswith("momentum") for key in block) else {"momentumAsTimeConstant": 0}
    return SGD(**{"maxEpochs": 2, "minibatchSize": 4, **momentum, **block})


def trained(loss=None, data=(X, Y), **block):
    """Weights after training, and the history."""
    loss = regression() if loss is None else loss
    history = _block(block).train(loss, data, progress_writers=[])
    return np.concatenate([p.value.ravel() for p in loss.parameters]), history


def run_of(loss=None, data=(X, Y), **block):
    """A run that has not begun."""
    return BlockRun(_block(block).settings, regression() if loss is None else loss, data, None, None, [], None)


def learner_of(run):
    """The implementation of a run's learner."""
    return unwrap(run._trainer.parameter_learners[0])


def epochs_of(losses, factors=None, **fields):
    """Epochs of a history with these losses and factors of the rate."""
    factors = factors or [1.0] * len(losses)
    return [
        Epoch(i + 1, 10, 1, loss, None, 0.1, factor, 10, **{key: values[i] for key, values in fields.items()})
        for i, (loss, factor) in enumerate(zip(losses, factors, strict=True))
    ]


def many(n=2000):
    """More samples, with an error that no linear model avoids."""
    x = np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32)
    return x, (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.3 * np.sin(9 * x[:, :1])).astype(np.float32)


def searched(first, **block):
    """`trained`, with rates that are searched before each epoch."""
    return trained(
        None, many(), **{"learningRatesPerSample": first, "autoAdjustLR": "searchBeforeEpoch", "maxEpochs": 3,
                         "minibatchSize": 10, "momentumPerMB": 0.5, **block}
    )
