"""Shared by the programs. Plain Python 3.6, so that CNTK 2.7's interpreter can import it too."""

import os

import numpy as np

import cntk as C

PROGRAMS = {}
MODULES = sorted(
    file[:-3]
    for file in os.listdir(os.path.dirname(os.path.abspath(__file__)))
    if file.startswith(("slides_", "tutorial_", "manual_", "user_"))
)


def program(function):
    """A script of a user: a function without arguments that returns numbers by name, the same for every engine."""
    PROGRAMS[function.__module__.split(".")[-1] + "." + function.__name__] = function
    return function


def numbers(*shape, **options):
    """Normal numbers, the same on every engine."""
    return np.asarray(np.random.RandomState(options.get("seed", 0)).standard_normal(shape), np.float32)


def one_hot(count, classes, seed=0):
    return np.eye(classes, dtype=np.float32)[np.random.RandomState(seed).randint(classes, size=count)]


def sequences(lengths, *shape, **options):
    return [numbers(length, *shape, seed=options.get("seed", 0) + i) for i, length in enumerate(lengths)]


def words(lengths, vocabulary, seed=0):
    """One-hot sequences."""
    return [one_hot(length, vocabulary, seed + i) for i, length in enumerate(lengths)]


def fix(model, scale=0.3, seed=0):
    """Give every parameter numbers that do not depend on the engine's initializers."""
    for i, p in enumerate(model.parameters):
        p.value = np.array(scale * numbers(*p.shape, seed=seed + i), dtype=p.dtype)
    return model


def losses(trainer, feeds, steps=4):
    """The mean loss of each of the next minibatches."""
    result = []
    for step in range(steps):
        trainer.train_minibatch(feeds[step % len(feeds)])
        result.append(trainer.previous_minibatch_loss_average)
    return result


def train(model, loss, feeds, rate=0.1, metric=None, steps=4):
    """Train with plain SGD: the losses, and the metrics if any."""
    criterion = loss if metric is None else (loss, metric)
    trainer = C.Trainer(model, criterion, [C.sgd(model.parameters, C.learning_parameter_schedule(rate))])
    result = {"loss": losses(trainer, feeds, steps)}
    if metric is not None:
        result["metric"] = trainer.previous_minibatch_evaluation_average
    return result


def summary(value):
    """Shape, first numbers and sums of an array, or of each of a list of arrays: enough to compare two engines."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, (list, tuple)) and any(np.ndim(v) or isinstance(v, str) for v in value):
        return [summary(v) for v in value]
    if hasattr(value, "todense"):
        value = value.todense()
    a = np.asarray(value, dtype=np.float64)
    if a.ndim < 2 and a.size <= 8:
        return a.tolist()
    return {
        "shape": list(a.shape),
        "first": a.ravel()[:4].tolist(),
        "sum": a.sum(),
        "norm": float(np.sqrt((a * a).sum())),
    }
