"""Descriptions: the same in all processes, and different for whatever computes something else."""

import functools
import subprocess
import sys
from enum import Enum

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.engine.xla.descriptions import NoDescription, describe, digest

W = C.parameter((3, 2))
OPTIONS = {
    "l1_regularization_weight": 0.1, "l2_regularization_weight": 0.1, "gaussian_noise_injection_std_dev": 0.1,
    "gradient_clipping_threshold_per_sample": 1.0,
}
LEARNERS = {
    "sgd": lambda **options: C.sgd([W], 0.1, **options),
    "momentum": lambda **options: C.momentum_sgd([W], 0.1, 0.9, **options),
    "nesterov": lambda **options: C.nesterov([W], 0.1, 0.9, **options),
    "adagrad": lambda **options: C.adagrad([W], 0.1, **options),
    "adadelta": lambda **options: C.adadelta([W], 0.1, **options),
    "fsadagrad": lambda **options: C.fsadagrad([W], 0.1, 0.9, **options),
    "adam": lambda **options: C.adam([W], 0.1, 0.9, **options),
    "adamax": lambda **options: C.adam([W], 0.1, 0.9, adamax=True, **options),
    "rmsprop": lambda **options: C.rmsprop([W], 0.1, 0.9, 1.1, 0.9, 10, 0.1, **options),
}


def of_learner(learner):
    return describe(learner.__wrapped__.transform)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_learner_has_a_description_that_its_options_change(learner):
    plain, regularized = of_learner(LEARNERS[learner]()), of_learner(LEARNERS[learner](**OPTIONS))
    assert plain == of_learner(LEARNERS[learner]()) != regularized
    assert " at 0x" not in plain + regularized


def test_learners_have_different_descriptions():
    assert len({of_learner(make()) for make in LEARNERS.values()}) == len(LEARNERS)
    assert of_learner(C.adam([W], 0.1, 0.9)) != of_learner(C.adam([W], 0.1, 0.9, epsilon=1e-3))
    assert of_learner(C.learners.from_optax([W], optax.adam(0.1))) != of_learner(
        C.learners.from_optax([W], optax.adam(0.2))
    )


class Color(Enum):
    RED = 1


@pytest.mark.parametrize("value", [
    lambda: 0, lambda x, f=lambda: 0: f, object(), Color.RED, np.array([object()]), {"f": [print, lambda: 1]},
    functools.partial(lambda: 0), optax.scale_by_schedule(lambda count: 1.0),
])
def test_code_and_objects_of_users_have_none(value):
    with pytest.raises(NoDescription):
        describe(value)


@pytest.mark.parametrize("a, b", [
    (1, 1.0), (1, True), ("1", 1), ((1, 2), [1, 2]), ((1, (2,)), ((1, 2),)), (np.float32(1), np.float64(1)),
    (np.zeros(2), np.zeros((2, 1))), (np.zeros(2), np.ones(2)), (jnp.tanh, jnp.sin), (np.float32, np.float64),
    ({"a": 1}, {"a": 2}), (C.Axis(0), C.Axis(1)), (C.Axis("a"), C.Axis("b")), (None, "None"), (b"a", "a"),
    (optax.clip(1.0), optax.clip(2.0)), (np.dtype("float32"), np.dtype("float16")),
    (("a, 'b'",), ("a", "b")),
])
def test_different_values_have_different_descriptions(a, b):
    assert describe(a) != describe(b)


def test_the_order_of_a_set_or_dictionary_has_no_influence():
    assert describe({"a": 1, "b": 2}) == describe({"b": 2, "a": 1})
    assert describe({"a", "b", "c"}) == describe({"c", "b", "a"})


def test_arrays_are_described_by_their_content():
    assert describe(jnp.arange(3)) != describe(jnp.arange(1, 4))
    assert describe(np.arange(3)) == describe(np.arange(3).copy())
    assert describe(np.arange(6).reshape(2, 3).T) != describe(np.arange(6).reshape(3, 2))


def test_functions_that_jax_has_wrapped_are_described_by_name():
    assert describe(jax.nn.relu) == "jax._src.nn.functions.relu" and describe(jnp.sign)


SCRIPT = """
import cntkjax as C, optax
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.engine.xla.descriptions import digest
x = C.sequence.input_variable(3)
f = C.layers.Recurrence(C.layers.LSTM(4))(C.layers.Dense(2, C.tanh)(x))
w = C.parameter((3, 2))
print(digest(plan_of(f.outputs).key), digest(C.adam([w], 0.1, 0.9).__wrapped__.transform, {"a", "b", "c"}))
"""


def test_another_process_has_the_same_descriptions(monkeypatch):
    x = C.sequence.input_variable(3)
    f = C.layers.Recurrence(C.layers.LSTM(4))(C.layers.Dense(2, C.tanh)(x))
    expected = digest(plan_of(f.outputs).key), digest(C.adam([W], 0.1, 0.9).__wrapped__.transform, {"a", "b", "c"})
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, check=True)
    assert tuple(run.stdout.split()) == expected
