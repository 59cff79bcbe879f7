"""Profiling into a folder: JAX's traces, the times of operations, and files of them."""

import pytest

from cntkjax import debugging
from cntkjax.debugging import profiler


@pytest.fixture(autouse=True)
def _stopped():
    yield
    profiler.stop_profiler()


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


def test_a_folder_that_cannot_be_created_is_the_kind_of_error_of_cntk(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="file/profile"):
        debugging.start_profiler(str(tmp_path / "file" / "profile"))


def test_jax_writes_the_trace(tmp_path):
    debugging.start_profiler(str(tmp_path))
    debugging.enable_profiler()
    debugging.stop_profiler()
    assert list(tmp_path.rglob("*.xplane.pb"))
