"""Exceptions that arrive anywhere in a step: state is as before it or as after it, never between.

Each test trains to the end in spite of interrupts, and compares with a run without them. `CNTKJAX_STRESS` is the factor
by which the tests are longer than in the gate (`make stress`).
"""

import ctypes
import os
import random
import signal
import threading
import time
import zlib

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import programs

LONGER = int(os.environ.get("CNTKJAX_STRESS", "1"))
INTERRUPTS = 100 * LONGER


# An interrupt may come while the callback of a weak reference runs, where Python reports and drops it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupt(BaseException):
    """Sent to a thread by another one."""


def minibatch(number, sizes=(8,)):
    """The data of a step. Shapes: x [samples, 3], y [samples, 1]."""
    rng = np.random.default_rng(number)
    size = sizes[number % len(sizes)]
    return rng.normal(size=(size, 3)).astype(np.float32), rng.normal(size=(size, 1)).astype(np.float32)


class Training:
    """A network with a learner that keeps state, dropout, running statistics and a learning rate that changes."""

    def __init__(self, sizes=(8,), accumulate=1):
        C.cntk_py.reset_random_seed()
        self.sizes = sizes
        self.x, self.y = C.input_variable(3), C.input_variable(1)
        h = C.layers.BatchNormalization()(C.layers.Dense(4, C.tanh)(self.x))
        self.z = C.layers.Dense(1)(C.layers.Dropout(0.2)(h))
        self.loss = C.squared_error(self.z, self.y)
        self.learner = C.adam(
            self.z.parameters, C.learning_parameter_schedule([0.1, 0.05, 0.01], epoch_size=200), momentum=0.9
        )
        self.trainer = C.Trainer(self.z, (self.loss, self.loss), [self.learner], accumulate=accumulate)

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


@pytest.mark.parametrize("source", ["signal", "thread"])
def test_evaluations_that_are_interrupted(source):
    """Assigned parameters and offsets of random numbers change together, or not at all."""
    rng = rng_of(source)
    x, count, copy = C.input_variable(2), C.parameter((), init=0), C.parameter((), init=0)
    f = C.combine([C.assign(count, count + 1), C.assign(copy, count + 1), C.dropout(x, 0.5, seed=1)])
    node = f.outputs[2].owner
    data = {x: np.ones((3, 2), np.float32)}
    f.eval(data)
    time_of_one = min(duration(lambda: f.eval(data)) for _ in range(9))
    for _ in range(INTERRUPTS):
        interrupted(source, rng.uniform(0, 1.2 * time_of_one), lambda: f.eval(data))
        assert count.value == copy.value == node.attributes["rngOffset"]


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


@pytest.fixture(autouse=True)
def own_signal_handlers():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore the signal
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for number, handler in handlers.items():
        signal.signal(number, handler)


def rng_of(name):
    return random.Random(zlib.crc32(name.encode()))


def duration(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_step_that_is_interrupted_is_taken_or_not(source, accumulate, tmp_path):
    rng, training, count = rng_of(source), Training(accumulate=accumulate), 0
    for _ in range(4):
        training.train()
    step = min(duration(training.train) for _ in range(9))
    attempts = 0
    while count < INTERRUPTS and attempts < 20 * INTERRUPTS:
        attempts += 1
        if interrupted(source, rng.uniform(0, 1.2 * step), training.train):
            count += 1
            if count % 20 == 0:
                assert_same(training.state(), expected(training.steps, accumulate=accumulate))
    assert count >= INTERRUPTS / 2
    assert_same(training.state(), expected(training.steps, accumulate=accumulate))
    file = str(tmp_path / "checkpoint")
    training.trainer.save_checkpoint(file)
    restored = Training(accumulate=accumulate)
    restored.trainer.restore_from_checkpoint(file)
    for _ in range(4):
        restored.train()
        training.train()
    assert_same(restored.state(), expected(restored.steps, accumulate=accumulate))
    assert_same(training.state(), expected(training.steps, accumulate=accumulate))
    assert np.isfinite(training.test())


@pytest.mark.parametrize("source", SOURCES)
def test_interrupts_while_programs_are_compiled(source):
    rng, sizes = rng_of(source), (8, 5)
    for _ in range(6 * LONGER):
        programs.clear()
        training = Training(sizes)
        interrupted(source, rng.uniform(0, 0.3), training.train)
        assert_same(training.state(), expected(training.steps, sizes=sizes))
        interrupted(source, rng.uniform(0, 0.6), training.train)
        for _ in range(3):
            training.train()
        assert_same(training.state(), expected(training.steps, sizes=sizes))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("truncation", [0, 3])
@pytest.mark.parametrize("randomize", [False, True])
def test_a_read_that_is_interrupted_has_moved_on_or_not(source, truncation, randomize, tmp_path):
    rng, file = rng_of(source), tmp_path / "data.ctf"
    lengths = [rng.randint(1, 9) for _ in range(200)]
    file.write_text("".join(f"{i} |x {i}.{step}\n" for i, length in enumerate(lengths) for step in range(length)))
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", shape=1))

    def open_source():
        return C.io.MinibatchSource(
            C.io.CTFDeserializer(str(file), streams), randomize=randomize, max_sweeps=15 * LONGER,
            randomization_window_in_chunks=0, randomization_window_in_samples=200 if randomize else 0,
            truncation_length=truncation,
        )

    def read(reader):
        minibatch = reader.next_minibatch(12)
        return [a.tolist() for a in minibatch[reader.streams.x].as_sequences()] if minibatch else None

    reader = open_source()
    minibatches = [read(reader) for _ in range(3)]
    time_of_one = min(duration(lambda: minibatches.append(read(reader))) for _ in range(9))
    while minibatches[-1] is not None:
        minibatches.append(read(reader))
    count = 0
    while count < 5:  # how many interrupts hit a read depends on the machine
        reader, i = open_source(), 0
        while i < len(minibatches) - 1:
            result = []
            if interrupted(source, rng.uniform(0, 3 * time_of_one), lambda: result.append(read(reader))) and not result:  # noqa: B023
                count += 1
                following = read(reader)
                assert following in minibatches[i : i + 2]
                i += 2 if following == minibatches[i + 1] else 1
            else:
                assert result[0] == minibatches[i]
                i += 1
        assert read(reader) is None
