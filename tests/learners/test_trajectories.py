"""All learners update parameters as CNTK 2.7 does: as recorded by record.py, and in tests/golden."""

import json
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from cntkjax import learners
from tests.learners.cases import CALLS, REFERENCES, SIZES, START, SWEEP_ENDS, gradient
from tests.learners.weights import Weights

HERE = Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "trajectories.json").read_text())
GOLDEN = HERE.parent / "golden" / "learners"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
# Their recorded gradients are dense; rows are tested in tests/engine/lower/test_rows.py and golden/check.py.
ROW_SPARSE = {"sparse_momentum_sgd", "sparse_adagrad"}

# These have no reference rule here, but tests in other files.
WITHOUT_RULE = {"default_unit_gain_value", "from_optax", "set_default_unit_gain_value", "universal"}

C = types.SimpleNamespace(learners=learners, **vars(learners))


def make(call, params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(call, {"C": C, "np": np, "params": params})


@pytest.fixture(autouse=True)
def without_compiling():
    """Hundreds of steps on tiny arrays are fast without compilation; test_learner.py tests compiled steps."""
    with jax.disable_jit():
        yield


def close(actual, expected, dtype):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


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


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("call", REFERENCES)
def test_follows_its_reference_rule(call, dtype):
    w = Weights(START, dtype)
    learner = make(call, [w])
    values, states = w.value.astype(float), [None] * w.value.size
    for step, size in enumerate(SIZES):
        gradients = np.array(gradient(step))
        assert learner.update({w: gradients.astype(dtype)}, size, step in SWEEP_ENDS)
        elements = zip(gradients.ravel(), values.ravel(), states, strict=True)
        results = [REFERENCES[call](g, value, state, size) for g, value, state in elements]
        values, states = np.reshape([value for value, _ in results], values.shape), [state for _, state in results]
        close(w.value, values, dtype)


def test_all_calls_are_recorded():
    assert list(RECORDED) == CALLS


def test_all_learners_have_a_row():
    """Adding a learner takes its rule and its function, with its name in ``__all__`` there, and a row in cases.py."""
    functions = {name for module in (learners._learners, learners._optax, learners._user) for name in module.__all__}
    functions = {name for name in functions if not isinstance(getattr(learners, name), type)} - WITHOUT_RULE
    assert functions == {name for name in functions if any(f"C.{name}(" in call for call in [*CALLS, *REFERENCES])}
    assert functions <= set(learners.__all__)


def golden_traces():
    traces = json.loads((GOLDEN / "index.json").read_text())["traces"]
    usable = [t for t in traces if t["file"] and "universal" not in t["learner"] and t["name"] not in ROW_SPARSE]
    return [pytest.param(trace, id=trace["name"]) for trace in usable]


@pytest.mark.parametrize("trace", golden_traces())
def test_follows_the_golden_trajectory_when_fed_its_gradients(trace):
    arrays = np.load(GOLDEN / trace["file"])
    dtype = "float64" if "float64_W" in arrays else "float32"
    params = [Weights(arrays[f"{dtype}_{name}"][0], dtype, name) for name in "WbV"]
    learner = make(trace["learner"], params)
    expected = trace.get("dtypes", {}).get(dtype)
    for step, size in enumerate(trace["minibatch_sizes"]):
        if statement := trace.get("after", {}).get(str(step)):
            exec(statement, {"C": C, "learner": learner})
        ends = step in trace["sweep_end_at_steps"] if expected else step % 5 == 4
        gradients = {p: arrays[f"{dtype}_grad_{p.name}"][step].astype(dtype) for p in params}
        taken = learner.update(gradients, size, ends)
        for p in params:
            close(p.value, arrays[f"{dtype}_{p.name}"][step + 1], dtype)
        if expected:
            assert taken is expected["train_minibatch_returned"][step]
            assert learner.total_number_of_samples_seen() == expected["samples_seen"][step]
            assert learner.learning_rate() == pytest.approx(expected["learning_rate_after_step"][step])
