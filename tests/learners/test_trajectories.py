"""Every learner moves parameters as CNTK 2.7 did: as recorded by record.py, and in ../shared/golden if it is there."""

import json
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from cntkjax import learners
from tests.learners.cases import CALLS, SIZES, START, SWEEP_ENDS, gradient
from tests.learners.weights import Weights

HERE = Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "trajectories.json").read_text())
GOLDEN = HERE.parents[2] / "shared" / "golden" / "learners"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
# Their recorded gradients are dense; what they show of rows is in tests/engine/lower/test_rows.py and golden/check.py.
ROW_SPARSE = {"sparse_momentum_sgd", "sparse_adagrad"}

C = types.SimpleNamespace(learners=learners, **vars(learners))


def make(call, params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(call, {"C": C, "np": np, "params": params})


@pytest.fixture(autouse=True)
def without_compiling():
    """The mathematics, hundreds of times on tiny arrays; test_learner.py compiles."""
    with jax.disable_jit():
        yield


def close(got, want, dtype):
    np.testing.assert_allclose(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("call", CALLS)
def test_follows_the_recorded_trajectory(call, dtype):
    w = Weights(START, dtype)
    learner = make(call, [w])
    recorded = dict(zip(reversed(range(len(SIZES))), reversed(RECORDED[call][dtype]), strict=False))
    for step, size in enumerate(SIZES):
        before = learner.learning_rate()
        was_taken = learner.update({w: np.array(gradient(step), dtype)}, size, step in SWEEP_ENDS)
        if step in recorded:
            values, rate, taken = recorded[step]
            close(w.value.ravel(), values, dtype)
            assert (before, was_taken) == (pytest.approx(rate), taken)


def test_every_case_is_recorded():
    assert list(RECORDED) == CALLS


def golden_traces():
    if not GOLDEN.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason="there is no ../shared/golden"))]
    traces = json.loads((GOLDEN / "index.json").read_text())["traces"]
    usable = [t for t in traces if t["file"] and "universal" not in t["learner"] and t["name"] not in ROW_SPARSE]
    return [pytest.param(trace, id=trace["name"]) for trace in usable]


@pytest.mark.parametrize("trace", golden_traces())
def test_follows_the_golden_trajectory_when_fed_its_gradients(trace):
    arrays = np.load(GOLDEN / trace["file"])
    dtype = "float64" if "float64_W" in arrays else "float32"
    params = [Weights(arrays[f"{dtype}_{name}"][0], dtype, name) for name in "WbV"]
    learner = make(trace["learner"], params)
    promise = trace.get("dtypes", {}).get(dtype)
    for step, size in enumerate(trace["minibatch_sizes"]):
        if statement := trace.get("after", {}).get(str(step)):
            exec(statement, {"C": C, "learner": learner})
        ends = step in trace["sweep_end_at_steps"] if promise else step % 5 == 4
        gradients = {p: arrays[f"{dtype}_grad_{p.name}"][step].astype(dtype) for p in params}
        taken = learner.update(gradients, size, ends)
        for p in params:
            close(p.value, arrays[f"{dtype}_{p.name}"][step + 1], dtype)
        if promise:
            assert taken is promise["train_minibatch_returned"][step]
            assert learner.total_number_of_samples_seen() == promise["samples_seen"][step]
            assert learner.learning_rate() == pytest.approx(promise["learning_rate_after_step"][step])
