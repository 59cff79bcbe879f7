"""Switches for debugging, and profiling into a folder."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax import debugging
from cntkjax.debugging import profiler
from cntkjax.graph import seed
from cntkjax.graph.settings import Settings


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(Settings, "checked", False)
    monkeypatch.setattr(Settings, "deterministic", False)
    yield
    seed.reset_random_seed()
    profiler.stop_profiler()


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


@pytest.fixture
def traces(monkeypatch):
    """The calls made to JAX's profiler."""
    calls = []
    monkeypatch.setattr(profiler._profiler, "start_trace", lambda directory: calls.append(("start", directory)))
    monkeypatch.setattr(profiler._profiler, "stop_trace", lambda: calls.append(("stop",)))
    return calls


def test_a_trace_is_recorded_between_enable_and_disable(traces, tmp_path):
    folder = str(tmp_path / "profile")
    debugging.start_profiler(folder)
    assert traces == []
    for _ in range(2):
        debugging.enable_profiler()
    for _ in range(2):
        debugging.disable_profiler()
    debugging.enable_profiler()
    debugging.stop_profiler()
    debugging.stop_profiler()
    assert traces == [("start", folder), ("stop",)] * 2
    assert (tmp_path / "profile").is_dir()


def test_without_start_nothing_is_recorded(traces):
    debugging.enable_profiler()
    debugging.disable_profiler()
    debugging.stop_profiler()
    assert traces == []


def test_profiling_is_not_started_twice(traces, tmp_path):
    debugging.start_profiler(str(tmp_path))
    with pytest.raises(RuntimeError, match="is running already"):
        debugging.start_profiler(str(tmp_path))


def test_jax_writes_the_trace(tmp_path):
    debugging.start_profiler(str(tmp_path))
    debugging.enable_profiler()
    debugging.stop_profiler()
    assert list(tmp_path.rglob("*.xplane.pb"))
