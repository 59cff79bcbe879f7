"""Threads that use one model: each sees it before or after a step, and those that train take turns."""

import threading
import time

import numpy as np

import cntkjax as C

from .training import LONGER

SECONDS = 2 * LONGER


def run(*actions, seconds=SECONDS):
    """Call each action again and again in a thread of its own; how often each was called. Errors: the first one."""
    stopped, errors, counts = threading.Event(), [], [0] * len(actions)

    def loop(i):
        try:
            while not stopped.is_set():
                actions[i]()
                counts[i] += 1
        except BaseException as error:
            errors.append(error)
            stopped.set()

    threads = [threading.Thread(target=loop, args=(i,), daemon=True) for i in range(len(actions))]
    for thread in threads:
        thread.start()
    stopped.wait(seconds)
    stopped.set()
    deadline = time.monotonic() + 30
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.1))
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    if errors:
        raise errors[0]
    print(f"{seconds} s:", ", ".join(f"{count} {f.__name__}" for f, count in zip(actions, counts, strict=True)))
    assert all(counts), counts
    return counts


class Counter:
    """Parameters that are all equal to the number of steps, times -1: their gradient is the number of samples."""

    def __init__(self):
        self.x = C.input_variable(4)
        self.parameters = [C.parameter(4, init=0, name=f"p{i}") for i in range(3)]
        self.z = sum((p * self.x for p in self.parameters[1:]), self.parameters[0] * self.x)
        self.loss = C.reduce_sum(self.z)
        self.learner = C.momentum_sgd(self.z.parameters, 1.0, momentum=0.0, unit_gain=False)
        self.trainer = C.Trainer(self.z, (self.loss, self.loss), [self.learner])
        self.feed = {self.x: np.ones((1, 4), np.float32)}

    def train(self):
        self.trainer.train_minibatch(self.feed)

    @property
    def steps(self):
        return self.trainer.total_number_of_samples_seen


def is_state(values):
    """Whether these are the values of all parameters after some step."""
    return np.ptp(np.concatenate([np.ravel(v) for v in values])) == 0


def test_others_see_the_state_before_or_after_a_step(tmp_path):
    counter = Counter()
    last = {}

    def grows(key, number):
        assert number >= last.get(key, 0)
        last[key] = number

    def read():
        for p in counter.parameters:
            value = p.value
            assert is_state([value])
            grows(p, -value[0])

    def evaluate():
        result = np.asarray(counter.z.eval(counter.feed))
        assert is_state([result])
        assert result.flat[0] % 3 == 0

    def test():
        assert counter.trainer.test_minibatch(counter.feed) % 12 == 0

    def forward():
        state, _ = counter.z.forward(counter.feed, [counter.z.output], {counter.z.output})
        counter.z.backward(state, {counter.z.output: np.ones((1, 4), np.float32)}, counter.parameters)

    def checkpoint():
        file = str(tmp_path / "checkpoint")
        counter.trainer.save_checkpoint(file)
        model = C.load_model(file)
        assert is_state([p.value for p in model.parameters])

    def save():
        file = str(tmp_path / "model")
        counter.z.save(file)
        assert is_state([p.value for p in C.load_model(file).parameters])

    def view():
        assert is_state([counter.parameters[0].get_value().asarray()])

    def clone():
        assert is_state([p.value for p in counter.z.clone("clone").parameters])

    run(counter.train, read, evaluate, test, forward, checkpoint, save, view, clone)
    assert is_state([p.value for p in counter.parameters])
    assert -counter.parameters[0].value[0] == counter.steps == counter.learner.total_number_of_samples_seen()


def test_threads_that_train_one_trainer_take_turns():
    counter = Counter()
    counts = run(*[counter.train] * 4)
    assert counter.steps == sum(counts) == counter.trainer.total_number_of_units_seen(C.train.DataUnit.minibatch)
    assert counter.learner.total_number_of_minibatches_seen() == counter.steps
    assert all((p.value == -counter.steps).all() for p in counter.parameters)


def test_trainers_that_share_parameters():
    counter = Counter()
    other = C.Trainer(counter.z, (counter.loss, None), [C.sgd(counter.z.parameters, 1.0)])
    counts = run(counter.train, lambda: other.train_minibatch(counter.feed))
    assert all((p.value == -sum(counts)).all() for p in counter.parameters)


class Double(C.ops.functions.UserFunction):
    """Twice its operand; it evaluates a graph and reads a parameter, as users' code may."""

    def __init__(self, x, parameter):
        super().__init__([x])
        self.parameter, self.graph = parameter, C.constant(1) * 2

    def infer_outputs(self):
        return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    def forward(self, x, device=None, outputs_to_retain=None):
        assert is_state([self.parameter.value])
        return None, x * self.graph.eval()

    def backward(self, state, gradients):
        return gradients * 2


def test_user_functions_in_several_threads():
    counter = Counter()
    own = C.parameter(4, init=0)
    loss = C.reduce_sum(C.user_function(Double((counter.parameters[0] + own) * counter.x, own)))
    trainer = C.Trainer(loss, (loss, None), [C.sgd([own], 0.5)])
    evaluated = C.user_function(Double(counter.z, counter.parameters[1]))
    counts = run(
        counter.train, lambda: trainer.train_minibatch(counter.feed), lambda: evaluated.eval(counter.feed),
        lambda: counter.parameters[0].value,
    )
    assert counts[0] == counter.steps == -counter.parameters[1].value[0]
    assert counts[1] == trainer.total_number_of_samples_seen == -own.value[0]
