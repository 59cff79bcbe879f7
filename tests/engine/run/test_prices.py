"""What runs and compilations cost, as it was measured."""

import math
import os

import pytest

from cntkjax.engine.run.prices import FREE, MeasuredPrices
from cntkjax.graph.settings import Settings


def test_a_run_costs_what_the_fastest_one_did():
    costs = MeasuredPrices()
    assert costs.seconds_per_work == 0
    for work, seconds in ((1000, 0.5), (1000, 0.2), (100, 0.1)):
        costs.note_run(work, seconds)
    assert costs.seconds_per_work == pytest.approx(0.2 / 1000, rel=0.01)


def test_the_second_and_the_third_run_of_an_executable_are_timed():
    costs = MeasuredPrices()
    assert [costs.next_run("a") for _ in range(5)] == [0, 1, 2, -1, -1]
    assert costs.next_run("b") == 0


def test_a_compilation_beside_the_work_takes_one_core_from_it(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    costs = MeasuredPrices(in_background=True)
    costs.note_compilation(2.0)
    assert costs.compilation_seconds == 0.5


def test_deterministic_runs_use_no_measurement(monkeypatch):
    monkeypatch.setattr(Settings, "deterministic", True)
    first, second = MeasuredPrices(), MeasuredPrices()
    first.note_run(10, 5.0)
    first.note_compilation(3.0)
    assert (first.seconds_per_work, first.compilation_seconds) == (second.seconds_per_work, second.compilation_seconds)
    assert first.seconds_per_work > 0


def test_where_nothing_has_a_price_nothing_is_worth_compiling():
    assert FREE.seconds_per_work == 0 and math.isfinite(FREE.compilation_seconds)
