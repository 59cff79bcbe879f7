"""A restored learner continues exactly as the one that was saved."""

import json
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from cntkjax import learners
from cntkjax.formats import checkpoint
from cntkjax.learners._checkpoint import state_dict
from cntkjax.learners._learner import Learner
from tests.learners.weights import Weights

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "checkpoints"
C = types.SimpleNamespace(learners=learners, **vars(learners))

CALLS = [
    "C.sgd(params, 0.1)",
    "C.momentum_sgd(params, 0.1, 0.9)",
    "C.nesterov(params, 0.1, 0.9)",
    "C.adagrad(params, 0.1)",
    "C.adadelta(params, 0.1)",
    "C.rmsprop(params, 0.1, 0.9, 1.1, 0.9, 1.2, 0.8)",
    "C.fsadagrad(params, 0.1, 0.9)",
    "C.adam(params, 0.1, 0.9)",
    "C.adam(params, 0.1, 0.9, adamax=True)",
    "C.sgd(params, C.learning_parameter_schedule([0.1, 0.2, 0.3], epoch_size=4), gaussian_noise_injection_std_dev=0.1)",
]


@pytest.fixture(autouse=True)
def without_compiling():
    with jax.disable_jit():
        yield


def weights(dtype=np.float32):
    return [Weights(np.arange(6).reshape(2, 3), dtype, "W"), Weights([1, 2], dtype, "b"), Weights(3, dtype, "s")]


def run(learner, steps):
    rng = np.random.default_rng(steps.start)
    for step in steps:
        gradients = {p: rng.normal(size=p.shape).astype(p.dtype) for p in learner.parameters}
        learner.update(gradients, 3, step == 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("call", CALLS)
def test_a_restored_learner_continues_identically(call, dtype):
    first, again = weights(dtype), weights(dtype)
    learner = eval(call, {"C": C, "params": first})
    run(learner, range(3))
    for w, old in zip(again, first, strict=True):
        w.value = old.value
    other = eval(call, {"C": C, "params": again})
    other.restore_from_checkpoint(state_dict(learner))
    assert other.counters == learner.counters
    assert other.learning_rate() == learner.learning_rate()
    for each in learner, other:
        run(each, range(3, 5))
    for w, old in zip(again, first, strict=True):
        np.testing.assert_array_equal(w.value, old.value)


def test_a_reset_rate_is_restored():
    first, second = Learner(weights(), C.learning_parameter_schedule(0.1)), C.sgd(weights(), 0.5)
    run(first, range(1))
    first.reset_learning_rate(C.learning_parameter_schedule([0.4, 0.2], epoch_size=4))
    run(first, range(1, 2))
    second.restore_from_checkpoint(state_dict(first))
    assert second.learning_rate() == 0.4
    run(second, range(2, 3))
    assert second.learning_rate() == 0.2


def test_checkpoints_of_cntk_survive_a_round_trip():
    for entry in json.loads((GOLDEN / "index.json").read_text())["checkpoints"]:
        arrays = np.load(GOLDEN / entry["data"])
        if len(states := checkpoint.load(GOLDEN / entry["model"]).learners) > 1 or entry["name"].startswith(
            "batchnorm"
        ):
            continue
        params = [Weights(arrays[name], np.float32, name) for name in ("W1", "b1", "W2", "b2")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner = eval(entry["learner"], {"C": C, "params": params})
        learner.restore_from_checkpoint(states[0])
        assert [learner.learning_rate()] == entry["restore"]["learning_rate"]
        for mine, theirs in zip(state_dict(learner).smoothed_gradients, states[0].smoothed_gradients, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_any_optax_chain_is_stored():
    rule = [("adam", optax.scale_by_adam()), ("rate", optax.scale(0.1))]
    schedule = C.learning_parameter_schedule(1.0)
    first, second = Learner(weights(), schedule, rule), Learner(weights(), schedule, rule)
    run(first, range(3))
    second.restore_from_checkpoint(state_dict(first))
    states = first.optax_state, second.optax_state
    same = jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), *states)
    assert all(jax.tree.leaves(same))


def test_the_state_of_another_learner_is_an_error_and_changes_nothing():
    adam, momentum = C.adam(weights(), 0.1, 0.9), C.momentum_sgd(weights(), 0.2, 0.9)
    run(adam, range(2))
    with pytest.raises(ValueError, match=r"parameter 'W' needs 1 arrays of shape \(2, 3\)"):
        momentum.restore_from_checkpoint(state_dict(adam))
    with pytest.raises(ValueError, match="has 3 parameters, but in the checkpoint the learner has 1"):
        momentum.restore_from_checkpoint(state_dict(C.sgd(weights()[:1], 0.1)))
    assert momentum.counters.samples == 0
    assert momentum.learning_rate() == 0.2
