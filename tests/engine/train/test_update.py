"""Updates of parameters: all learners at once, none where gradients overflow, and none of a learner that skips."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cntkjax.engine.lower.rows import Rows
from cntkjax.engine.train.loss_scale import LossScale
from cntkjax.engine.train.update import TrainedState, update_key, updated


def scaled(factor):
    """The gradient times a factor and the rate; the state counts the updates."""
    def update(gradients, count, parameters=None, *, hyper, **_):
        return jax.tree.map(lambda g: -factor * hyper["rate"] * g, gradients), count + 1

    return optax.GradientTransformationExtraArgs(lambda parameters: 0, update)


TRANSFORMS = [scaled(1.0), scaled(10.0)]
RATE = {"rate": np.float32(0.5)}
GRADIENTS = [[np.float32([1, 2])], [np.float32([4])]]


def state(scale=None):
    return TrainedState([[jnp.zeros(2)], [jnp.ones(1)]], [jnp.int32(0), jnp.int32(0)], scale)


def lists(after):
    return [[a.tolist() for a in values] for values in after.parameters], [int(n) for n in after.learners]


def test_each_learner_updates_its_parameters():
    assert lists(updated(TRANSFORMS, state(), GRADIENTS, [RATE, RATE])) == ([[[-0.5, -1]], [[-19]]], [1, 1])


def test_a_learner_without_hyperparameters_stays_as_it_was():
    assert lists(updated(TRANSFORMS, state(), GRADIENTS, [None, RATE])) == ([[[0, 0]], [[-19]]], [0, 1])


@pytest.mark.parametrize(("learns", "expected"), [
    (1, ([[[-0.5, -1]], [[-19]]], [1, 1])), (0, ([[[0, 0]], [[-19]]], [0, 1])),
])
def test_a_learner_that_is_flagged_not_to_learn_stays_as_it_was(learns, expected):
    hypers = [RATE | {"learns": np.int32(learns)}, RATE]
    assert lists(updated(TRANSFORMS, state(), GRADIENTS, hypers)) == expected


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_gradients_that_overflow_update_nothing_but_the_scale(bad):
    before = state(LossScale(jnp.float32(8), jnp.int32(3)))
    after = updated(TRANSFORMS, before, [[np.float32([1, 2])], [np.float32([bad])]], [RATE, RATE])
    assert lists(after) == ([[[0, 0]], [[1]]], [0, 0])
    assert (float(after.loss_scale.factor), int(after.loss_scale.steps)) == (4, 0)


def test_finite_gradients_update_where_those_of_all_devices_are():
    before = state(LossScale(jnp.float32(8), jnp.int32(3)))
    after = updated(TRANSFORMS, before, GRADIENTS, [RATE, RATE])
    assert lists(after)[1] == [1, 1] and int(after.loss_scale.steps) == 4
    elsewhere = updated(TRANSFORMS, before, GRADIENTS, [RATE, RATE], everywhere=lambda flag: flag & False)
    assert lists(elsewhere) == ([[[0, 0]], [[1]]], [0, 0])


def test_the_shapes_of_an_update_depend_on_gradients_and_on_who_updates():
    rows = Rows(np.array([0], np.int32), np.ones((1, 1), np.float32), 2)
    keys = [
        update_key(GRADIENTS, [RATE, RATE]), update_key(GRADIENTS, [None, RATE]), update_key(GRADIENTS[:1], [RATE]),
        update_key([GRADIENTS[0], [np.float64([4])]], [RATE, RATE]), update_key([GRADIENTS[0], [rows]], [RATE, RATE]),
    ]
    assert len(set(keys)) == len(keys)
    assert update_key([[-g for g in group] for group in GRADIENTS], [RATE | {"rate": np.float32(9)}] * 2) == keys[0]
