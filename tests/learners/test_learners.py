"""CNTK's learners: what their arguments may be."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import learners as L
from cntkjax.graph.seed import get_random_seed
from tests.learners.weights import MAKE, RMSPROP, Weights, steps


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize(
    "parameters, error, says",
    [
        ([], ValueError, "at least one parameter"),
        ("twice", ValueError, "'w' stands more than once"),
        ("alone", TypeError, "a list or tuple of parameters, not Parameter"),
        (["a"], TypeError, "'a' of type str is none"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_invalid_parameter_lists_are_errors(make, parameters, error, says):
    w = Weights([1.0])
    with pytest.raises(error, match=says):
        make({"twice": [w, w], "alone": w}.get(parameters, parameters) if isinstance(parameters, str) else parameters)


@pytest.mark.parametrize("value", ["a", None, (0.1, 0.2)])
def test_invalid_rates_and_momentums_are_errors(value):
    w = Weights([1.0])
    for make in (
        lambda: L.sgd([w], value),
        lambda: L.momentum_sgd([w], 0.1, value),
        lambda: L.adam([w], 0.1, 0.9, variance_momentum=value),
        lambda: L.sgd([w], 0.1, gaussian_noise_injection_std_dev=value),
    ):
        with pytest.raises(ValueError, match="must be a number, a list or a schedule"):
            make()


@pytest.mark.parametrize("value", [3, "x", None])
def test_unit_gain_must_be_a_bool(value):
    with pytest.raises(TypeError, match="unit_gain"):
        L.momentum_sgd([Weights([1.0])], 0.1, 0.9, unit_gain=value)


def test_a_negative_epsilon_is_an_error():
    with pytest.raises(ValueError, match="epsilon must not be negative, but is -1"):
        L.adam([Weights([1.0])], 0.1, 0.9, epsilon=-1)


@pytest.mark.parametrize(
    "name, value",
    [("gamma", 0), ("gamma", 1), ("inc", 1), ("dec", 1.0), ("dec", -0.7), ("max", 0.0005), ("max", 0.001), ("min", 0)],
)
def test_rmsprop_checks_its_limits(name, value):
    with pytest.raises(RuntimeError, match=f"rmsprop: .*{name}.*{value}"):
        L.rmsprop([Weights([1.0])], 0.1, **{**RMSPROP, name: value})


def test_the_default_of_unit_gain_does_not_affect_learners():
    assert L.default_unit_gain_value() is True
    try:
        L.set_default_unit_gain_value(False)
        assert L.default_unit_gain_value() is False
        w = Weights([1.0], np.float64)
        assert steps(L.momentum_sgd([w], 0.1, 0.9), 0.25, [4]) == pytest.approx(1 - 0.1 * 0.1 * 0.25)
    finally:
        L.set_default_unit_gain_value(True)


def test_each_learner_takes_a_seed_as_in_cntk():
    w = C.parameter(1)
    before = get_random_seed()
    L.sgd([w], 0.1)
    L.adam([w], 0.1, 0.9, gaussian_noise_injection_std_dev=0.1)
    L.universal(lambda p, g: C.assign(p[0], g[0]), [w])
    assert get_random_seed() == before + 3

    class Own(C.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            return True

    Own([w], L.learning_parameter_schedule(0.1))
    assert get_random_seed() == before + 3
