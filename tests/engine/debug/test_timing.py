"""Operations timed one by one."""

import re

import numpy as np
import pytest

import cntkjax as C
from cntkjax import debugging
from cntkjax.engine.debug.timing import timings_of
from cntkjax.graph.settings import Settings

F = np.float32


@pytest.fixture(autouse=True)
def timed(monkeypatch):
    monkeypatch.setattr(Settings, "timed", False)
    debugging.set_node_timing(True)
    yield
    debugging.stop_profiler()


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def counts(function):
    """Operation: (times forward, times backward)."""
    return {n.op_name: (t.forwards, t.backwards) for n, t in timings_of([function]).items()}


def test_training_is_timed_forward_and_backward(capsys):
    x, y = C.input_variable(3), C.input_variable(2)
    model = C.layers.Dense(2, activation=C.tanh)(x)
    loss = C.squared_error(model, y)
    trainer = C.Trainer(model, (loss, C.classification_error(model, y)), [C.sgd(model.parameters, 0.1)])
    for count in (4, 4, 5):
        trainer.train_minibatch({x: sample(count, 3), y: sample(count, 2)})
    runs = counts(C.combine([loss, trainer.evaluation_function]))
    assert runs["Times"] == runs["Plus"] == runs["Tanh"] == (3, 3)
    assert runs["Hardmax"] == (3, 0), "nothing flows back from the metric"
    loss.print_node_timing()
    lines = capsys.readouterr().out.splitlines()
    pattern = r"\w+ +forward avg 0\.\d{6}s, backward avg 0\.\d{6}s \(fwd# 3\|bwd# 3\)"
    assert len(lines) == 6 and all(re.fullmatch(pattern, line) for line in lines) and lines == sorted(lines)


def test_timing_changes_nothing():
    x = C.input_variable(3)
    values = []
    for on in (True, False):
        debugging.set_node_timing(on)
        C.cntk_py.set_fixed_random_seed(1)
        C.cntk_py.reset_random_seed(1)
        model = C.layers.Sequential([C.layers.Dense(4), C.layers.BatchNormalization(), C.layers.Dropout(0.5)])(x)
        loss = C.reduce_sum(C.square(model))
        trainer = C.Trainer(model, (loss,), [C.sgd(model.parameters, 0.1)])
        for seed in range(3):
            trainer.train_minibatch({x: sample(4, 3, seed=seed)})
        values.append([p.value for p in (*model.parameters, *model.constants)])
    assert all(np.array_equal(a, b) for a, b in zip(*values, strict=True))


def test_a_loop_counts_as_one_operation(capsys):
    s = C.sequence.input_variable(3)
    model = C.sequence.first(C.layers.Recurrence(C.layers.RNNStep(2))(s))
    model.eval([sample(3, 3), sample(1, 3)])
    model.print_node_timing()
    loops = [line for line in capsys.readouterr().out.splitlines() if "loop of" in line]
    assert len(loops) == 1 and loops[0].startswith("PastValue") and loops[0].endswith("loop of 5 operations")
    runs = counts(model)
    assert runs["Sequence::First"] == (1, 0), "what comes after the loop is timed too"


def test_gradients_go_through_loops():
    s, y = C.sequence.input_variable(3), C.input_variable(2)
    model = C.sequence.last(C.layers.Recurrence(C.layers.RNNStep(2))(s))
    trainer = C.Trainer(model, (C.squared_error(model, y),), [C.sgd(model.parameters, 0.1)])
    trainer.train_minibatch({s: [sample(3, 3), sample(1, 3)], y: sample(2, 2)})
    runs = counts(model)
    assert runs["PastValue"] == (1, 1) and runs["Times"] == (1, 1)


def test_gradients_in_graphs_are_timed():
    x = C.input_variable(3)
    model = C.layers.Dense(2, activation=C.tanh)(x)
    loss = C.reduce_sum(C.square(C.gradient(C.reduce_sum(model), x)))
    C.Trainer(model, (loss,), [C.sgd(model.parameters, 0.1)]).train_minibatch({x: sample(4, 3)})
    runs = counts(loss)
    assert runs["Gradient"] == (1, 1) and runs["ReduceElements"] == (1, 1)


def test_nothing_is_timed_if_disabled():
    debugging.set_node_timing(False)
    x = C.input_variable(2)
    model = C.tanh(x)
    model.eval(sample(1, 2))
    assert counts(model) == {}


def test_functions_of_users_are_not_called_twice():
    calls = []

    class Same(C.ops.functions.UserFunction):
        def infer_outputs(self):
            return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

        def forward(self, argument, device=None, outputs_to_retain=None):
            calls.append(argument)
            return None, argument

    x = C.input_variable(2)
    C.user_function(Same([x])).eval(sample(1, 2))
    assert len(calls) == 1
