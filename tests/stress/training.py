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


class Descent(C.learners.UserLearner):
    """Takes its time; in between, some parameters have a new value and others have not."""

    def update(self, gradient_values, training_sample_count, sweep_end):
        for p, gradient in gradient_values.items():
            for _ in range(20):
                p.value = p.value - 0.01 / 20 * np.asarray(gradient)
        return True


def with_momentum(parameters, gradients):
    """The graph of a learner with state."""
    traces = [C.parameter(p.shape, init=0) for p in parameters]
    new = [0.9 * trace + gradient for trace, gradient in zip(traces, gradients, strict=True)]
    groups = zip(parameters, traces, new, strict=True)
    return C.combine([a for p, trace, v in groups for a in (C.assign(trace, v), C.assign(p, p - 0.01 * v))])


LEARNERS = {
    "UserLearner": lambda parameters: Descent(parameters, C.learning_parameter_schedule(0.1)),
    "universal": lambda parameters: C.universal(with_momentum, parameters),
}
DISTRIBUTED = {
    "data": C.data_parallel_distributed_learner,
    "blocks": lambda learner: C.block_momentum_distributed_learner(learner, 16 * C.Communicator.num_workers()),
    None: lambda learner: learner,
}


class EverySecond(C.ops.functions.UserFunction):
    """Every second sample, which takes several programs."""

    def __init__(self, x, name=""):
        super().__init__([x], name=name)

    @staticmethod
    def deserialize(inputs, name, state):
        return EverySecond(*inputs, name)

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(self, x, device=None, outputs_to_retain=None):
        return None, x[::2]

    def backward(self, state, gradients):
        return np.repeat(gradients, 2, axis=0) * np.resize(np.array([[1], [0]], np.float32), (2 * len(gradients), 1))


class Training:
    """A network with a learner that keeps state, dropout, running statistics and a learning rate that changes.

    `second`: the kind of another learner, which has the parameters of the last layer. `stages`: a step is taken by
    several programs and a user function.
    """

    def __init__(self, sizes=(8,), accumulate=1, distributed=None, second=None, first_minibatch=0, stages=False):
        C.cntk_py.reset_random_seed()
        self.sizes, self.first_minibatch = sizes, first_minibatch
        self.x, self.y = C.input_variable(3), C.input_variable(1)
        h = C.layers.BatchNormalization()(C.layers.Dense(4, C.tanh, name="hidden")(self.x))
        last = C.layers.Dense(1)
        self.z = last(C.layers.Dropout(0.2)(h))
        self.loss = C.squared_error(*(C.user_function(EverySecond(v)) if stages else v for v in (self.z, self.y)))
        of_second = list(last.parameters) if second else []
        self.learner = C.adam(
            [p for p in self.z.parameters if p not in of_second],
            C.learning_parameter_schedule([0.1, 0.05, 0.01], epoch_size=200), momentum=0.9,
        )
        learners = [self.learner, *([LEARNERS[second](of_second)] if second else [])]
        self.extra = [v for learner in learners for v in learner.__wrapped__.extra_variables]
        self.trainer = C.Trainer(
            self.z, (self.loss, self.loss), [DISTRIBUTED[distributed](each) for each in learners], accumulate=accumulate
        )

    @property
    def steps(self):
        return self.trainer.total_number_of_units_seen(C.train.DataUnit.minibatch)

    def train(self):
        """Take the step that follows on those that were counted."""
        number = self.steps
        x, y = minibatch(self.first_minibatch + number, self.sizes)
        self.trainer.train_minibatch({self.x: x, self.y: y}, is_sweep_end=number % 10 == 9)

    def test(self):
        x, y = minibatch(0)
        return self.trainer.test_minibatch({self.x: x, self.y: y})

    def state(self):
        """All that training changes."""
        nodes = C.logging.graph.depth_first_search(self.loss.root_function, lambda x: hasattr(x, "op_name"), depth=-1)
        return {
            "parameters": [p.value for p in [*self.z.parameters, *self.z.constants, *self.extra]],
            "counts": [
                self.trainer.total_number_of_units_seen(unit) for unit in C.train.DataUnit
            ] + [
                self.learner.total_number_of_samples_seen(), self.learner.total_number_of_minibatches_seen(),
                self.learner.total_number_of_sweeps_seen(), self.learner.learning_rate(),
            ],
            "offsets": [
                self.trainer.memory.streams.place(n, True).offset for n in nodes if "rngOffset" in n.attributes
            ],
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
