"""The benchmark of gaps between steps."""

import numpy as np
import pytest

import cntk as C
from benchmarks.gaps import Recording, Workload, record


def test_a_gap_is_a_time_in_which_nothing_runs_and_nothing_is_handed_over():
    running = [(0.0, 2.0), (1.0, 4.0), (5.0, 6.0), (9.0, 10.0)]
    recording = Recording(running, ended=[4.0, 6.0, 10.0], handed_over=[-1.0, 3.0, 8.5])
    assert list(recording.idle()) == [(4.0, 5.0), (6.0, 9.0)]
    assert recording.empty() == [0.0, 2.5]  # the second program was there in time; the third one came at 8.5
    assert "| 5.0 ms | 0 | 25.00% | 2.50 ms, 50.0% | 1 | 40.00% | 60.0% |" in recording.row("x", steps=2)


def test_each_recorded_step_is_a_program_that_was_handed_over(tmp_path):
    x, y = C.input_variable(8), C.input_variable(2)
    data = {"x": np.ones((40, 8), np.float32), "y": np.ones((40, 2), np.float32)}
    source = C.io.MinibatchSourceFromData(data)
    record(Workload(x, C.layers.Dense(2)(x), y, source, 4, warm=5), 7, tmp_path)
    recording = Recording.read(tmp_path)
    assert len(recording.ended) == len(recording.handed_over) == 7
    assert recording.duration > 0 and all(gap >= 0 for gap in recording.empty())
    assert len(recording.row("x", 7).split("|")) == 10


@pytest.mark.parametrize("name", ["atis"])
def test_a_missing_data_set_is_said(name, capsys, monkeypatch):
    from benchmarks import gaps, resources

    monkeypatch.setitem(resources.DEFAULTS, "atis", resources.HERE / "missing")
    gaps.main(["--networks", name])
    assert "pass its folder with --atis" in capsys.readouterr().err
