"""Repeated pieces of a graph are one scan, and compute the same."""

import numpy as np
import pytest

import cntk as C
from cntkjax.engine.plan import repeats
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.plan.repeats import Repeat

STEPS, WIDTH = 14, 3


def weight(*shape):
    return C.parameter(shape, init=C.glorot_uniform(seed=1) if len(shape) > 1 else 0.1)


def steps_of(x):
    return [C.reshape(C.slice(x, 0, t, t + 1), WIDTH) for t in range(STEPS)]


def gru(x):
    """Returns the last state, and all."""
    gates = [(weight(WIDTH, WIDTH), weight(WIDTH, WIDTH), weight(WIDTH)) for _ in range(3)]
    (wz, uz, bz), (wr, ur, br), (wc, uc, bc) = gates
    h, states = C.constant(np.zeros(WIDTH, np.float32)), []
    for now in steps_of(x):
        z = C.sigmoid(C.times(now, wz) + C.times(h, uz) + bz)
        r = C.sigmoid(C.times(now, wr) + C.times(h, ur) + br)
        c = C.tanh(C.times(now, wc) + C.times(r * h, uc) + bc)
        h = z * h + (1 - z) * c
        states.append(h)
    return h, states


def lstm(x):
    cell = C.layers.LSTM(WIDTH)
    h, c = C.constant(np.zeros(WIDTH, np.float32)), C.constant(np.zeros(WIDTH, np.float32))
    for now in steps_of(x):
        h, c = cell(h, c, now).outputs
    return h


def layers(x):
    h = C.reduce_sum(x, 0)
    for _ in range(24):
        w = weight(WIDTH, WIDTH)
        h = h + C.tanh(C.times(h, w) + weight(WIDTH)) * 0.1
    return h


def with_outputs_of_all_steps(x):
    return C.plus(*[C.reduce_sum(C.square(h)) for h in gru(x)[1][::3]][:2]) + gru(x)[0]


def with_dropout(x):
    h = C.reduce_sum(x, 0)
    w = weight(WIDTH, WIDTH)
    for _ in range(24):
        h = C.dropout(C.tanh(C.times(h, w)), 0.5)
    return h


def with_skips(x):
    h, before = C.reduce_sum(x, 0), C.reduce_mean(x, 0)
    w = weight(WIDTH, WIDTH)
    for _ in range(24):
        h, before = C.tanh(C.times(h, w) + before) * 0.9, h
    return h


def without_values_of_their_own(x):
    h, w = C.reduce_sum(x, 0), weight(WIDTH, WIDTH)
    for _ in range(40):
        h = C.tanh(C.times(h, w))
    return h


def blocks_with_two_sums(x, width=WIDTH, count=20):
    h = C.layers.Dense(width)(C.reduce_sum(x, 0))
    for _ in range(count):
        h = h + C.tanh(C.times(h, weight(width, width)))
        h = h + C.times(C.sigmoid(C.times(h, weight(width, width)) + weight(width)), weight(width, width)) * 0.1
    return h


NETWORKS = {
    "nothing own": without_values_of_their_own,
    "gru": lambda x: gru(x)[0], "lstm": lstm, "layers": layers, "all steps": with_outputs_of_all_steps,
    "skips": with_skips, "two sums": blocks_with_two_sums,
}


def found(network, samples=0):
    x = C.input_variable((STEPS, WIDTH))
    plan = Plan(C.combine([network(x)]).outputs)
    return [item for item in repeats.repeats(plan.parts, plan.outputs, samples) if isinstance(item, Repeat)]


@pytest.mark.parametrize(("name", "carried"), [
    ("gru", 1), ("lstm", 2), ("layers", 1), ("skips", 2), ("nothing own", 1), ("two sums", 1)
])
def test_equal_pieces_one_after_the_other_are_found(name, carried):
    (repeat,) = found(NETWORKS[name])
    assert len(repeat.carried) == carried and len(repeat.pieces) >= STEPS - 3


@pytest.mark.parametrize("name", ["layers", "two sums"])
def test_all_layers_but_the_first_are_pieces(name):
    (repeat,) = found(NETWORKS[name])
    assert len(repeat.pieces) == {"layers": 22, "two sums": 19}[name]


def test_random_numbers_and_statistics_are_not_repeated():
    assert not found(with_dropout)
    assert not found(C.layers.For(range(20), lambda: [C.layers.Dense(WIDTH), C.layers.BatchNormalization()]))


def test_large_weights_are_not_copied_to_one_array():
    wide = C.layers.For(range(30), lambda: [C.layers.Dense(200), C.layers.Dense(200, C.tanh)])
    assert not found(wide)


def test_large_weights_of_many_layers_are_copied_if_more_is_computed_with_them(monkeypatch):
    def deep(x):
        return blocks_with_two_sums(x, 100)

    assert not found(deep, samples=100)
    monkeypatch.setattr(repeats, "MANY_NODES", 100)
    assert not found(deep, samples=10)
    (repeat,) = found(deep, samples=100)
    assert len(repeat.pieces) == 19
