"""Recordings of time spans: the files of a profile."""

import json

import numpy as np
import pytest

import cntkjax as C
from cntkjax import debugging
from cntkjax.engine.debug.timing import timings_of
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
