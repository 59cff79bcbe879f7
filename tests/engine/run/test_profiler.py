"""Recordings of time spans: the files of a profile."""

import json

import numpy as np
import pytest

import cntkjax as C
from cntkjax import debugging
from cntkjax.engine.debug.timing import timings_of
from cntkjax.engine.run import profiler
from cntkjax.engine.run.profiler import Recording
from cntkjax.graph.settings import Settings

F = np.float32


@pytest.fixture(autouse=True)
def timed(monkeypatch):
    monkeypatch.setattr(Settings, "timed", False)
    debugging.set_node_timing(True)
    yield
    debugging.stop_profiler()


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def test_a_profile_shows_programs_and_operations(tmp_path):
    x = C.input_variable(3)
    model = C.layers.Dense(2, activation=C.tanh)(x)
    loss = C.reduce_sum(C.square(model))
    trainer = C.Trainer(model, (loss,), [C.sgd(model.parameters, 0.1)])
    debugging.start_profiler(str(tmp_path))
    trainer.train_minibatch({x: sample(4, 3)})  # not recorded yet
    debugging.enable_profiler()
    for _ in range(2):
        trainer.train_minibatch({x: sample(4, 3)})
    debugging.disable_profiler()
    trainer.train_minibatch({x: sample(4, 3)})
    debugging.stop_profiler()
    (detail,) = tmp_path.glob("*_detail_.json")
    events = json.loads(detail.read_text())
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert set(tracks.values()) == {"Nodes", "Programs"}
    spans = [e for e in events if e["ph"] != "M"]
    tanh = next(n for n in timings_of([model]) if n.op_name == "Tanh").uid
    for name in (f"{tanh}Forward", f"{tanh}Backward", "train"):
        assert [e["ph"] for e in spans if e["name"] == name] == ["B", "E"] * 2
    for begin, end in zip(spans[::2], spans[1::2], strict=True):
        assert (begin["name"], begin["ph"], end["ph"]) == (end["name"], "B", "E") and end["ts"] >= begin["ts"] >= 0
    (summary,) = tmp_path.glob("*_summary_.txt")
    row = next(line for line in summary.read_text().splitlines() if line.split()[:1] == ["train"])
    assert row.split()[5] == "2"


def test_an_empty_profile_writes_no_files(tmp_path):
    debugging.start_profiler(str(tmp_path))
    debugging.stop_profiler()
    assert list(tmp_path.iterdir()) == []


def test_a_recording_has_an_event_for_each_end_of_a_span_and_a_track_for_each_name():
    recording = Recording()
    for track, name, begin, end in [("Nodes", "a", 1, 3), ("Programs", "p", 0, 4), ("Nodes", "a", 5, 6)]:
        recording.add(track, name, recording._start + begin, recording._start + end)
    events = recording.events()
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert list(tracks.values()) == ["Nodes", "Programs"]
    spans = [(tracks[e["tid"]], e["name"], e["ph"], round(e["ts"] / 1e6)) for e in events if e["ph"] != "M"]
    assert spans == [
        ("Nodes", "a", "B", 1), ("Nodes", "a", "E", 3), ("Programs", "p", "B", 0), ("Programs", "p", "E", 4),
        ("Nodes", "a", "B", 5), ("Nodes", "a", "E", 6),
    ]


def test_a_summary_has_the_durations_of_each_name_the_longest_first():
    recording = Recording()
    for name, begin, end in [("short", 0, 0.001), ("long", 0, 0.002), ("long", 1, 1.004)]:
        recording.add("Nodes", name, begin, end)
    rows = [line.split() for line in recording.summary().splitlines()]
    assert rows[2] == ["Nodes"]
    assert rows[3] == ["long", "3.000", "1.000", "2.000", "4.000", "2", "6.000"]
    assert rows[4] == ["short", "1.000", "0.000", "1.000", "1.000", "1", "1.000"]


def test_spans_are_added_only_between_start_and_finish_where_enabled(tmp_path):
    profiler.add("Nodes", "before", 0, 1)
    profiler.start()
    profiler.add("Nodes", "disabled", 0, 1)
    assert not profiler.is_recording()
    profiler.set_enabled(True)
    assert profiler.is_recording()
    profiler.add("Nodes", "enabled", 0, 1)
    profiler.finish(str(tmp_path))
    assert not profiler.is_recording()
    (summary,) = tmp_path.glob("*_summary_.txt")
    assert "enabled" in summary.read_text() and "disabled" not in summary.read_text()
