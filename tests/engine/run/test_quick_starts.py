"""How often a program runs that was compiled quickly, before a better one takes its place."""

import pytest

from cntkjax.engine.run.quick_starts import QUICK_ELEMENTS, Allowance, affordable_runs, affordable_steps


@pytest.mark.parametrize(("elements", "runs"), [
    (0, QUICK_ELEMENTS), (1, QUICK_ELEMENTS), (QUICK_ELEMENTS, 1), (QUICK_ELEMENTS + 1, 0), (QUICK_ELEMENTS // 4, 4),
])
def test_the_larger_a_program_is_the_fewer_runs_pay(elements, runs):
    assert affordable_runs(elements) == runs


def test_the_other_program_is_compiled_when_half_of_the_runs_are_left():
    allowance = Allowance.of(5)
    assert not allowance.is_unlimited
    assert [allowance.spend() for _ in range(5)] == [False, False, True, False, False]
    assert allowance.left == 0


def test_steps_pay_longer_the_more_operations_compute_their_elements():
    assert [affordable_steps(3_000_000, n) for n in (2, 4, 100)] == [1, 2, 50]
    assert [affordable_steps(n * 30_000_000, 80) for n in (1, 4, 5)] == [4, 1, 0]


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
