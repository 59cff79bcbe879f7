"""A training whose whole state is compared with that of a run that nothing disturbs, and what disturbs it.

`CNTKJAX_STRESS` is the factor by which tests are longer than in the gate (`make stress`).
"""

import ctypes
import os
import random
import signal
import threading
import time
import zlib

import numpy as np

import cntkjax as C

LONGER = int(os.environ.get("CNTKJAX_STRESS", "1"))


class Interrupt(BaseException):
    """Sent to a thread by another one."""


def minibatch(number, sizes=(8,)):
    """The data of a step. Shapes: x [samples, 3], y [samples, 1]."""
    rng = np.random.default_rng(number)
    size = sizes[number % len(sizes)]
    return rng.normal(size=(size, 3)).astype(np.float32), rng.normal(size=(size, 1)).astype(np.float32)


class Training:
    """A network with a learner that keeps state, dropout, running statistics and a learning rate that changes."""

    def __init__(self, sizes=(8,), accumulate=1, distributed=False):
        C.cntk_py.reset_random_seed()
        self.sizes = sizes
        self.x, self.y = C.input_variable(3), C.input_variable(1)
        h = C.layers.BatchNormalization()(C.layers.Dense(4, C.tanh, name="hidden")(self.x))
        self.z = C.layers.Dense(1)(C.layers.Dropout(0.2)(h))
        self.loss = C.squared_error(self.z, self.y)
        self.learner = C.adam(
            self.z.parameters, C.learning_parameter_schedule([0.1, 0.05, 0.01], epoch_size=200), momentum=0.9
        )
        learner = C.data_parallel_distributed_learner(self.learner) if distributed else self.learner
        self.trainer = C.Trainer(self.z, (self.loss, self.loss), [learner], accumulate=accumulate)

    @property
    def steps(self):
        return self.trainer.total_number_of_units_seen(C.train.DataUnit.minibatch)

    def train(self):
        """Take the step that follows on those that were counted."""
        number = self.steps
        x, y = minibatch(number, self.sizes)
        self.trainer.train_minibatch({self.x: x, self.y: y}, is_sweep_end=number % 10 == 9)

    def test(self):
        x, y = minibatch(0)
        return self.trainer.test_minibatch({self.x: x, self.y: y})

    def state(self):
        """All that training changes."""
        nodes = C.logging.graph.depth_first_search(self.loss.root_function, lambda x: hasattr(x, "op_name"), depth=-1)
        return {
            "parameters": [p.value for p in [*self.z.parameters, *self.z.constants]],
            "counts": [
                self.trainer.total_number_of_units_seen(unit) for unit in C.train.DataUnit
            ] + [
                self.learner.total_number_of_samples_seen(), self.learner.total_number_of_minibatches_seen(),
                self.learner.total_number_of_sweeps_seen(), self.learner.learning_rate(),
            ],
            "offsets": [n.attributes["rngOffset"] for n in nodes if "rngOffset" in n.attributes],
        }


_EXPECTED = {}


def expected(steps, **options):
    """The states of an uninterrupted run, after each step up to this one, and its tests."""
    key = tuple(options.items())
    if key not in _EXPECTED:
        training = Training(**options)
        _EXPECTED[key] = training, [training.state()]
    training, states = _EXPECTED[key]
    while len(states) <= steps:
        training.train()
        states.append(training.state())
    return states[steps]


def assert_same(state, other):
    assert state["counts"] == other["counts"]
    assert state["offsets"] == other["offsets"]
    for value, expected_value in zip(state["parameters"], other["parameters"], strict=True):
        np.testing.assert_array_equal(value, expected_value)


def signals_from_timer(delay):
    """Arm a timer that sends SIGINT; returns the function that disarms it."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, delay)
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0)


def exceptions_from_thread(delay):
    """Start a thread that sends an exception to this one; returns the function that stops it."""
    target, stopped = threading.get_ident(), threading.Event()

    def send():
        if not stopped.wait(delay):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(Interrupt))

    thread = threading.Thread(target=send)
    thread.start()

    def stop():
        stopped.set()
        thread.join()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), None)

    return stop


SOURCES = {"signal": signals_from_timer, "thread": exceptions_from_thread}


def interrupted(source, delay, action):
    """Whether an action was interrupted before its end."""
    disarm = None
    try:
        try:
            disarm = SOURCES[source](delay)
            action()
        finally:
            if disarm is not None:
                disarm()
    except (KeyboardInterrupt, Interrupt):
        return True
    return False


def rng_of(name):
    return random.Random(zlib.crc32(name.encode()))


def duration(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
