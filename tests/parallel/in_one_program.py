"""The program of each worker in test_in_one_program.py.

Prints the programs that it compiled, what it has learned, and how many numbers each step has fetched from the device.
"""

import json
import os
import sys
import threading
from contextlib import contextmanager

import jax
import numpy as np
import pytest

import cntk as C
from cntkjax.engine.run.compilations import report
from cntkjax.engine.xla import private_names


@contextmanager
def fetches():
    """A list that gets the size of each array that crosses to the host. On a GPU such a fetch is an error here.

    jax's guard does not act on a CPU, so the ways to the host are watched: NumPy's functions, and jax's own method.
    """
    sizes, array_type = [], type(jax.numpy.zeros(1))
    with pytest.MonkeyPatch.context() as patch, jax.transfer_guard_device_to_host("disallow"):
        for name in ("asarray", "array", "ascontiguousarray", "copyto", "stack", "concatenate"):
            patch.setattr(np, name, _watched(getattr(np, name), sizes))
        value = array_type._value
        patch.setattr(array_type, "_value", property(lambda a: (sizes.append(a.size), value.fget(a))[1]))
        yield sizes


def _watched(function, sizes):
    def watch(*arguments, **options):
        sizes.extend(a.size for a in jax.tree.leaves(arguments) if isinstance(a, jax.Array))
        return function(*arguments, **options)

    return watch


def train(sizes):
    """Steps on so many samples; returns the programs of the steps, the parameters, losses and fetches."""
    before = len(report().programs)
    x, y = C.input_variable(4), C.input_variable(2)
    z = C.layers.Dense(2, init=C.glorot_uniform(seed=1))(x)
    learner = C.distributed.data_parallel_distributed_learner(C.momentum_sgd(z.parameters, 0.1, 0.9))
    trainer = C.Trainer(z, (C.squared_error(z, y), None), learner)
    rng, losses, fetched = np.random.default_rng(C.Communicator.rank()), [], []
    for n in sizes:
        with fetches() as now:
            trainer.train_minibatch({x: rng.normal(size=(n, 4)), y: rng.normal(size=(n, 2))} if n else {})
        fetched += now
        losses.append(trainer.previous_minibatch_loss_average if trainer.previous_minibatch_sample_count else 0)
    names = [program.text for program in report().programs[before:]]
    with fetches() as later:
        values = [p.value.tolist() for p in z.parameters]
    assert len(later) >= len(values)  # so fetches are noticed
    return [name for name in names if "state" not in name], values, losses, fetched


def assigned():
    """The values of a parameter that the loss assigns, after each step."""
    x, w = C.input_variable(2), C.parameter(init=np.float32([5, 6]))
    loss = C.reduce_sum(C.assign(w, C.constant(np.float32([1, 2])))) + C.reduce_sum(x * w)
    learner = C.sgd([w], C.learning_parameter_schedule_per_sample(0.1))
    trainer = C.Trainer(None, loss, C.distributed.data_parallel_distributed_learner(learner))
    values = []
    for i in range(4):
        trainer.train_minibatch({x: [[1, 1 + i]]})
        values.append(w.value.tolist())
    return values


def policies():
    """How the system schedules the threads of Python, and all others."""
    own = {thread.native_id for thread in threading.enumerate()}
    others = {int(name) for name in os.listdir("/proc/self/task")} - own
    return [sorted({os.sched_getscheduler(task) for task in tasks}) for tasks in (own, others)]


def main():
    private_names.available()  # found out with small programs, whose results cross to the host
    rank = C.Communicator.rank()
    equal, unequal, padded = train([4, 4, 4]), train([4, 4 * rank, 4]), train([4 + rank, 5 - rank, 5])
    print(json.dumps([equal, unequal, padded, policies() if sys.platform == "linux" else None, assigned()]))
    C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main()
