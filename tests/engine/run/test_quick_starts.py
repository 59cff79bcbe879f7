"""How often a program runs that was compiled quickly, before a better one takes its place."""

import pytest

from cntkjax.engine.run.quick_starts import LOST_TIME_OF_AN_OPERATION, Allowance, affordable_runs


@pytest.mark.parametrize(("lost_time", "operations", "runs"), [
    (0, 1, LOST_TIME_OF_AN_OPERATION), (LOST_TIME_OF_AN_OPERATION, 1, 1), (LOST_TIME_OF_AN_OPERATION + 1, 1, 0),
    (LOST_TIME_OF_AN_OPERATION / 4, 1, 4), (LOST_TIME_OF_AN_OPERATION, 80, 80),
])
def test_the_more_a_run_loses_the_fewer_pay_and_more_the_more_there_is_to_compile(lost_time, operations, runs):
    assert affordable_runs(lost_time, operations) == runs


def test_the_other_program_is_compiled_when_half_of_the_runs_are_left():
    allowance = Allowance.of(5)
    assert not allowance.is_unlimited
    assert [allowance.spend() for _ in range(5)] == [False, False, True, False, False]
    assert allowance.left == 0


def test_steps_count_in_whatever_programs_they_run():
    allowance, begins = Allowance.of(6), []
    for step in (1, 3, 5, 6):  # others took steps 2 and 4
        allowance.reach(step)
        begins.append(allowance.spend())
    assert (begins, allowance.left) == ([False, True, False, False], 0)


def test_what_was_compiled_thoroughly_stays():
    allowance = Allowance.of(0)
    assert not any(allowance.spend() for _ in range(1000))
    assert allowance.is_unlimited
