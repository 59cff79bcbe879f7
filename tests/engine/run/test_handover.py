"""Interrupts while jax traces and compiles."""

import signal

import pytest

from cntkjax.engine.run.handover import deferred_interrupts


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
