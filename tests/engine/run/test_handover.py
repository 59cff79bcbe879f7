"""Handing over state: what a program has computed is committed once, whatever interrupts it."""

import signal
import subprocess
import sys
import time

import pytest

from cntkjax._interrupts import deferred_interrupts, keep_ignored_interrupts
from cntkjax.engine.run.handover import Attempt, assign, conclude, hand_over, replace_state
from cntkjax.graph.cells import Cell


class Interrupt(BaseException):
    pass


def capture(value):
    return lambda outputs: outputs.append(lambda: value)


def test_changes_follow_from_outputs_and_are_committed_with_the_result():
    samples, loss = Cell(0), Cell(0.0)
    assert hand_over(capture(3), lambda n: ({samples: n, loss: 0.5}, "result")) == "result"
    assert (samples.value, loss.value) == (3, 0.5)


def test_an_interrupt_after_the_program_loses_nothing_and_counts_nothing_twice():
    samples, interrupts = Cell(10), iter([Interrupt(), Interrupt()])

    def conclude_interrupted(n):
        changes = {samples: samples.value + n}
        for interrupt in interrupts:
            raise interrupt
        return changes, None

    with pytest.raises(Interrupt):
        hand_over(capture(3), conclude_interrupted)
    assert samples.value == 13


def test_an_interrupt_before_the_program_changes_nothing():
    samples = Cell(10)

    def compute(outputs):
        raise Interrupt

    with pytest.raises(Interrupt):
        hand_over(compute, lambda n: ({samples: 0}, None))
    assert samples.value == 10


def test_changes_without_a_program_are_computed_again_after_an_interrupt():
    samples, interrupts = Cell(1), iter([Interrupt()])

    def changes():
        for interrupt in interrupts:
            raise interrupt
        return {samples: samples.value + 1}

    with pytest.raises(Interrupt):
        conclude(changes)
    assert samples.value == 2


def test_interrupted_assignments_are_made_to_their_end():
    made, interrupts = [], iter([Interrupt()])

    def assignments():
        made.append("first")
        for interrupt in interrupts:
            raise interrupt
        made.append("second")

    with pytest.raises(Interrupt):
        assign(assignments)
    assert made == ["first", "first", "second"]


@pytest.mark.parametrize("error", [ValueError, Interrupt])
def test_an_attempt_that_fails_leaves_the_cells_as_they_were(error):
    weight, count = Cell(1.0), Cell(0)
    with pytest.raises(error), Attempt([weight, count]):
        replace_state({weight: 2.0})
        replace_state({count: 1})
        raise error
    assert (weight.value, count.value) == (1.0, 0)


def test_an_attempt_is_kept_by_the_commit_that_says_so():
    weight, count = Cell(1.0), Cell(0)
    with Attempt([weight, count]) as attempt:
        replace_state({weight: 2.0})
        replace_state({count: 1, **attempt.kept})
    assert (weight.value, count.value) == (2.0, 1)


def test_an_interrupt_waits_until_the_compilation_ends():
    reached = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached


def test_a_second_interrupt_ends_it_at_once():
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("not interrupted")
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C means the same as before
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_python_ignores_comes_again(monkeypatch):
    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # pytest has one of its own
    keep_ignored_interrupts()
    with pytest.raises(KeyboardInterrupt):
        Dying()
        time.sleep(60)


INTERRUPTED_IMPORT = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "jaxlib._jax":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
try:
    import cntkjax
except KeyboardInterrupt:
    import cntkjax, jax.numpy
    print(cntkjax.minus([3], [1]).eval())
"""


def test_an_interrupt_waits_until_jax_is_imported():
    result = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True)
    assert result.stdout == "[2.]\n", result.stderr


def test_other_ignored_exceptions_are_shown_as_before(monkeypatch):
    class Dying:
        def __del__(self):
            raise ValueError("of a user")

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: shown.append(ignored.exc_type))
    keep_ignored_interrupts()
    Dying()
    assert shown == [ValueError]
