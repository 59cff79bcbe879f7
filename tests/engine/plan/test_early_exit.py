"""Generators stop with the last sequence, unless later steps are used."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from tests.engine.generators import (
    LIMIT,
    Counting,
    S,
    assert_equal,
    counted,
    counter,
    early_exits,
    fed,
    inputs,
    steps_of,
)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_half_and_double_precision(grid, dtype):
    start, like = inputs(dtype)
    state, going = C.placeholder(), C.placeholder()
    before = S.past_value(C.reconcile_dynamic_axes(state, like), start)
    h = C.element_times(before, C.constant(1.5, dtype=dtype))
    h.replace_placeholders({state: h.output})
    stop = C.greater(h, C.constant(LIMIT, dtype=dtype))
    valid = (1 - S.past_value(stop)) * S.past_value(going, 1)
    f = S.gather(h, valid.replace_placeholders({going: valid.output}))
    values = f.eval(fed(start, like, [1, 4, 10], [30, 1, 4], dtype))
    assert len(early_exits(f)) == 1 and values[0].dtype == dtype
    assert_equal(values, [1.5 ** np.arange(1, 7), [6], [15]], rtol=1e-3 if dtype == np.float16 else 1e-12)


class TestLiveness:
    """A generator h = before + 1 with the flag of UnfoldFrom, written by hand."""

    start, like = inputs()
    feeds = fed(start, like, [4, 6], [30, 30])  # of equal lengths, so that the grid has no more steps
    numbers = [counted(4, 30), counted(6, 30)]

    def parts(self):
        state = C.placeholder()
        before = S.past_value(C.reconcile_dynamic_axes(state, self.like), self.start)
        h = C.user_function(Counting(before + 1))
        h = h.replace_placeholders({state: h.output})
        stop = C.greater_equal(h, LIMIT)
        valid = L.Recurrence(lambda v, x: (1 - S.past_value(x)) * v, initial_state=1)(stop)
        return h, stop, valid

    def values(self, outputs, exits):
        """Values of the first output, after a check whether the generator stops early."""
        f = C.combine([v.output for v in outputs])
        assert len(early_exits(f)) == exits
        steps, values = steps_of(f, self.feeds)
        assert steps == (6 if exits else 30)
        return values[outputs[0].output] if len(outputs) > 1 else values

    def test_gathered_steps_end_with_the_flag(self):
        h, _, valid = self.parts()
        assert_equal(self.values([S.gather(h, valid)], 1), self.numbers)

    def test_stepwise_operations_on_the_values_may_be_gathered(self):
        h, _, valid = self.parts()
        squares = C.alias(h * h + S.past_value(h, 0, 2), "later")
        expected = [n * n + np.r_[0, 0, n][: len(n)] for n in self.numbers]
        assert_equal(self.values([S.gather(squares, valid), S.gather(h, valid)], 1), expected)

    def test_another_loop_over_the_values_may_be_gathered(self):
        h, _, valid = self.parts()
        sums = L.Recurrence(C.plus)(h)
        assert_equal(self.values([S.gather(sums, valid)], 1), [n.cumsum() for n in self.numbers])

    def test_the_flag_may_be_an_output(self):
        h, _, valid = self.parts()
        expected = [np.arange(30) < 5, np.arange(30) < 3]
        assert_equal(self.values([valid, S.gather(h, valid)], 1), expected)

    def test_as_an_output_the_generator_runs_in_full(self):
        h, _, valid = self.parts()
        assert_equal(self.values([S.gather(h, valid), h], 0), self.numbers)

    def test_if_the_condition_is_an_output_it_runs_in_full(self):
        h, stop, valid = self.parts()
        assert_equal(self.values([S.gather(h, valid), stop], 0), self.numbers)

    def test_a_value_from_later_steps_makes_it_run_in_full(self):
        h, _, valid = self.parts()
        expected = [np.append(n[1:], n[-1] + 1) for n in self.numbers]
        assert_equal(self.values([S.gather(S.future_value(h), valid)], 0), expected)

    def test_the_last_step_makes_it_run_in_full(self):
        h, _, valid = self.parts()
        np.testing.assert_allclose(self.values([S.last(h), S.gather(h, valid)], 0).ravel(), [34, 36])

    def test_steps_gathered_by_another_condition_make_it_run_in_full(self):
        h, _, valid = self.parts()
        late = S.gather(h, C.greater(h, 30))
        assert_equal(self.values([late, S.gather(h, valid)], 0), [[31, 32, 33, 34], [31, 32, 33, 34, 35, 36]])

    def test_a_condition_on_later_steps_makes_it_run_in_full(self):
        h, _, _ = self.parts()
        stop = C.greater_equal(S.future_value(h), LIMIT + 1)
        valid = L.Recurrence(lambda v, x: (1 - S.past_value(x)) * v, initial_state=1)(stop)
        assert_equal(self.values([S.gather(h, valid)], 0), self.numbers)


def test_a_generator_that_begins_at_the_end_of_another(grid):
    start, like = inputs()
    first = counter(start, like)
    second = L.UnfoldFrom(lambda h: h - 2, until_predicate=lambda h: C.less(h, 3))(S.last(first), like)
    both = C.combine([first.output, second.output])
    assert len(early_exits(both)) == 2
    values = both.eval(fed(start, like, [4, -20], [30, 7]))
    assert_equal(values[first.output], [counted(4, 30), counted(-20, 7)])
    assert_equal(values[second.output], [[7, 5, 3, 1], [-15]])


def test_several_states_of_which_one_is_the_output(grid):
    start, like = inputs()
    f = L.UnfoldFrom(
        lambda h: (C.splice(h, h * h), h + 1), until_predicate=lambda p: C.greater(C.reduce_sum(p), 20)
    )(start, like)
    assert len(early_exits(f)) == 1
    values = f.eval(fed(start, like, [2, 5, 0], [30, 9, 3]))
    assert_equal(values, [[[n, n * n] for n in numbers] for numbers in ([2, 3, 4, 5], [5], [0, 1, 2])])
