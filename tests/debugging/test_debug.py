"""Switches for debugging."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import debugging
from cntkjax.graph import seed
from cntkjax.graph.settings import Settings


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(Settings, "checked", False)
    monkeypatch.setattr(Settings, "deterministic", False)
    yield
    seed.reset_random_seed()


def test_checked_mode_is_a_setting():
    debugging.set_checked_mode(True)
    assert Settings.checked


def test_force_deterministic_fixes_the_seed_and_the_algorithms():
    debugging.force_deterministic(3)
    assert Settings.deterministic
    assert (seed.get_random_seed(), seed.is_random_seed_fixed()) == (3, True)


@pytest.mark.parametrize("call", [lambda: debugging.set_checked_mode("a"), lambda: debugging.set_node_timing(1.5),
                                  lambda: debugging.set_computation_network_trace_level("a")])
def test_arguments_of_another_type_are_refused(call):
    with pytest.raises(TypeError, match="needs"):
        call()


def test_compilations_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(Settings, "trace_level", 0)
    debugging.set_computation_network_trace_level(1)
    s = C.sequence.input_variable(3, name="s")
    model = C.layers.Recurrence(C.layers.RNNStep(2))(s)
    model.eval([np.ones((4, 3))])
    model.eval([np.ones((4, 3))])
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("Compiled in") for line in lines) == 1, "the second one is not compiled"
    assert "'evaluate' of 6 operations" in lines[0] and lines[1] == "  s is fed as (4, 1, 3)"
    assert "  loop forwards along defaultDynamicAxis:" in lines
    times = next(line.strip() for line in lines if "= Times(s, W)" in line)
    assert times.endswith(": [#, *], [3], [], [3 x 2] -> [#, *], [2]")
