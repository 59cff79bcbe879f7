"""Delayed values: sequences are shifted, and begin with the initial state. Numbers: CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from tests.engine.lower.test_loops import sequences
from tests.ops.test_cntk_behaviour import x


@pytest.mark.parametrize("delay", ["past_value", "future_value"])
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_delay_outside_of_loops_shifts_each_sequence(grid, delay, shift):
    x = C.sequence.input_variable(2)
    data = sequences([3, 1, 5], 2)
    values = getattr(C.sequence, delay)(x, 7, shift).eval({x: data})
    for value, d in zip(values, data, strict=True):
        pad = np.full((min(shift, len(d)), 2), 7, np.float32)
        remaining = len(d) - len(pad)
        expected = np.concatenate([pad, d[:remaining]] if delay == "past_value" else [d[len(d) - remaining :], pad])
        np.testing.assert_array_equal(value, expected)


F = np.float32


def test_delayed_sparse_data_are_dense():
    s = C.sequence.input_variable(3, is_sparse=True)
    assert not C.sequence.past_value(s).is_sparse


@pytest.mark.parametrize("delay", [C.sequence.past_value, C.sequence.future_value])
@pytest.mark.parametrize("state", [[5], [5, 6], [[5]], [[5], [6]], [[[5]]]])
def test_delayed_scalars_have_the_axes_of_their_initial_state(delay, state):
    s, state = C.sequence.input_variable(()), np.array(state, F)
    (actual,) = delay(s, state).eval([[1, 2, 3]])
    expected = [state, 1 + 0 * state, 2 + 0 * state] if delay is C.sequence.past_value else [2, 3, state]
    assert np.array_equal(actual, [np.broadcast_to(e, state.shape) for e in expected])


def test_delayed_scalars_begin_with_the_state_of_their_sequence():
    s, a = C.sequence.input_variable(()), x(2)
    f = C.sequence.past_value(s, a)
    values = f.eval({s: [np.array([1, 2], F), np.array([3], F)], a: [[5, 6], [7, 8]]})
    assert [v.tolist() for v in values] == [[[5, 6], [1, 1]], [[7, 8]]]
