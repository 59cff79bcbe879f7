"""Recurrent networks for a few sequences that the library in C computes are those that XLA computes."""

from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.run import few_rows as few_rows_module
from cntkjax.engine.run import few_sequences as few_sequences_module
from cntkjax.engine.run.few_sequences import MOST_STEPS

RNG = np.random.default_rng(8)
dense, recurrence, Sequential = C.layers.Dense, C.layers.Recurrence, C.layers.Sequential


@pytest.fixture
def use_native(native, monkeypatch):
    """Predictors use this library, with two threads."""
    monkeypatch.setattr(few_rows_module, "library", lambda: native)
    monkeypatch.setattr(few_sequences_module, "library", lambda: native)
    monkeypatch.setattr("cntkjax.engine.native.program.threads", lambda: 2)


def of_sequences(*layers, size=5):
    return Sequential([*layers])(C.sequence.input_variable(size))


def both_directions(x):
    return C.splice(recurrence(C.layers.LSTM(6))(x), recurrence(C.layers.LSTM(6), go_backwards=True)(x))


def shifted(x):
    return C.splice(x, C.sequence.past_value(x, 0.3), C.sequence.future_value(C.relu(x), time_step=2))


def several_delays(x):
    past, future = C.sequence.past_value, C.sequence.future_value
    return C.splice(past(x, 0.3), past(x), future(x), past(x, 0.3), past(x, C.constant(-0.2), time_step=2),
                    past(x, 0.3, time_step=2))


def two_steps_before(x):
    state = C.placeholder()
    h = C.tanh(dense(5)(x) + 0.5 * C.sequence.past_value(state, C.constant(0.1), time_step=2))
    return h.replace_placeholders({state: h.output})


NETWORKS = {
    "tagger": of_sequences(recurrence(C.layers.LSTM(20)), dense(7)),
    "two layers": of_sequences(dense(4), recurrence(C.layers.LSTM(20)), C.layers.Dropout(0.5),
                               recurrence(C.layers.LSTM(3))),
    "backwards": of_sequences(recurrence(C.layers.LSTM(9), go_backwards=True), dense(7, activation=C.sigmoid)),
    "both directions": of_sequences(both_directions, dense(3)),
    "GRU": of_sequences(recurrence(C.layers.GRU(18))),
    "plain recurrence": of_sequences(recurrence(C.layers.RNNStep(5, activation=C.relu))),
    "peepholes, stabilizers": of_sequences(
        C.layers.Stabilizer(), recurrence(C.layers.LSTM(6, use_peepholes=True, enable_self_stabilization=True))),
    "the last step": of_sequences(C.layers.Fold(C.layers.LSTM(8)), dense(3, activation=C.tanh)),
    "initial state": of_sequences(recurrence(C.layers.LSTM(6), initial_state=0.1)),
    "initial vector": of_sequences(recurrence(C.layers.RNNStep(4), initial_state=C.parameter(4, init=C.normal(1)))),
    "shifted": of_sequences(dense(4), shifted, recurrence(C.layers.GRU(3))),
    "several delays": of_sequences(dense(4), several_delays, lambda h: h * h),
    "a state delayed once more": of_sequences(
        recurrence(C.layers.RNNStep(4), initial_state=0.1), lambda h: h + C.sequence.past_value(h, 0.7)),
    "two steps before": of_sequences(two_steps_before),
    "the argument, shifted": of_sequences(shifted, dense(3)),
    "no loop": of_sequences(dense(20, activation=C.relu), lambda h: 2 - h * h, dense(3)),
    "several outputs": C.combine([
        *(h := of_sequences(recurrence(C.layers.GRU(4)))).outputs, *C.sequence.last(h).outputs, *dense(2)(h).outputs]),
}


def feeds(f, lengths):
    data = [np.zeros((n, 5), np.float32) for n in lengths]
    return [*f._feeds(data, f.outputs).values()]


@cache
def by_xla(name, count, length):
    """Two lists of sequences, and the outputs for them: states do not stay."""
    f, data = NETWORKS[name], RNG.standard_normal((count, length, 5)).astype(np.float32)
    return [(sequences, answers(f.eval([*sequences]))) for sequences in (data, -data)]


def answers(values):
    return [*values.values()] if isinstance(values, dict) else [values]


@pytest.mark.parametrize("count, length", [(1, 1), (1, 7), (3, 4)])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_numbers_are_those_of_xla(name, count, length, use_native):
    predict = C.Predictor(NETWORKS[name])
    executables = len(predict._program.program.executables)  # of predictors of this structure
    for sequences, expected in by_xla(name, count, length):
        for value, exact in zip(answers(predict([*sequences])), expected, strict=True):
            assert type(value) is type(exact)
            np.testing.assert_allclose(np.array(value), np.array(exact), rtol=0, atol=2e-6)
    assert len(predict._program.program.executables) == executables


def test_sequences_of_several_lengths_or_many_steps_are_left_to_xla(use_native):
    f = NETWORKS["tagger"]
    predict = C.Predictor(f)
    for lengths in ([3, 5], [MOST_STEPS + 1]):
        assert predict._program._few_sequences(feeds(f, lengths)) is None
        data = [RNG.standard_normal((n, 5)).astype(np.float32) for n in lengths]
        for value, expected in zip(predict(data), f.eval(data), strict=True):
            np.testing.assert_allclose(value, expected, rtol=0, atol=2e-6)


def test_a_stream_carries_its_state(use_native):
    f = NETWORKS["tagger"]
    predict, data = C.Predictor(f), RNG.standard_normal((6, 5)).astype(np.float32)
    whole, step = predict([data])[0], predict.stream()
    np.testing.assert_allclose(np.concatenate([step(part)[0] for part in np.split(data, 3)]), whole, rtol=0, atol=2e-6)


def test_answers_of_one_call_stay_when_others_follow(use_native):
    predict, data = C.Predictor(NETWORKS["tagger"]), RNG.standard_normal((2, 4, 5)).astype(np.float32)
    first = predict([data[0]])[0]
    copy = first.copy()
    predict([data[1]])
    np.testing.assert_array_equal(first, copy)


@pytest.mark.parametrize("f", [
    C.layers.Fold(C.layers.LSTM(3), go_backwards=True)(C.sequence.input_variable(5)),
    recurrence(C.layers.LSTM(3))(C.layers.Embedding(4)(C.sequence.input_variable((2, 5), is_sparse=True))),
    C.sequence.reduce_sum(C.sequence.input_variable(5)),
    C.splice(*(C.sequence.last(recurrence(C.layers.GRU(3))(
        C.sequence.input_variable(5, sequence_axis=C.Axis(name)))) for name in ("one", "other"))),
], ids=["the first step", "sparse matrices", "sums over steps", "two sequence axes"])
def test_other_networks_are_left_to_xla(f, use_native):
    assert C.Predictor(f)._program._few_sequences._native is None


def several_arguments():
    """Functions of several arguments, and data for so many sequences of so many steps."""
    axis = C.Axis("steps")
    x, y = (C.sequence.input_variable(5, sequence_axis=axis) for _ in "xy")
    words, sample = C.sequence.input_variable(9, is_sparse=True, sequence_axis=axis), C.input_variable(4)
    embedded = C.layers.Embedding(5)(words)
    return {
        "sequences": (recurrence(C.layers.LSTM(6))(C.splice(x, dense(4)(y))), (x, y)),
        "a sample": (dense(3)(C.splice(C.sequence.last(recurrence(C.layers.GRU(6))(x)), sample)), (x, sample)),
        "one-hot": (dense(3)(recurrence(C.layers.LSTM(6))(embedded)), (words,)),
        "one-hot, twice": (dense(3)(words) + recurrence(C.layers.RNNStep(3))(embedded), (words,)),
        "one-hot and dense": (recurrence(C.layers.LSTM(6))(embedded + x), (words, x)),
    }


def example(v, count, length):
    if v.is_sparse:
        return C.Value.one_hot(RNG.integers(0, 9, (count, length)), 9)
    return RNG.standard_normal((count, *([length] if v.sequence_axis else []), *v.shape)).astype(np.float32)


@pytest.mark.parametrize("count, length", [(1, 1), (1, 7), (3, 4)])
@pytest.mark.parametrize("name", several_arguments())
def test_several_arguments_and_one_hot_vectors_are_those_of_xla(name, count, length, use_native):
    f, arguments = several_arguments()[name]
    predict = C.Predictor(f)
    executables = len(predict._program.program.executables)
    for _ in range(2):
        data = {v: example(v, count, length) for v in arguments}
        for value, exact in zip(predict(data), f.eval(data), strict=True):
            np.testing.assert_allclose(value, exact, rtol=0, atol=2e-6)
    assert len(predict._program.program.executables) == executables


def test_sparse_vectors_that_are_not_one_hot_are_left_to_xla(use_native):
    f, (words,) = several_arguments()["one-hot"]
    rows = csr_matrix(np.array([[0, 2, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 3, 0, 0, 0, 0, 0]], np.float32))
    predict = C.Predictor(f)
    assert predict._program._few_sequences([*f._feeds({words: [rows]}, f.outputs).values()]) is None
    np.testing.assert_allclose(predict({words: [rows]})[0], f.eval({words: [rows]})[0], rtol=0, atol=2e-6)


def test_arguments_of_several_lengths_or_numbers_are_refused_as_by_eval(use_native):
    f, (x, y) = several_arguments()["sequences"]
    predict = C.Predictor(f)
    for sizes in ((1, 3), (2, 4)):
        data = {x: example(x, 1, 4), y: example(y, *sizes)}
        with pytest.raises(ValueError) as expected:
            f.eval(data)
        with pytest.raises(type(expected.value)):
            predict(data)
