"""The factor of the loss in float16: halved by an overflow, doubled after many steps without one."""

import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.train.loss_scale import GROWTH_INTERVAL, INITIAL_FACTOR, LossScale
from cntkjax.engine.train.state import Accumulated
from tests.engine.train.training import network, values


@pytest.mark.parametrize(("factor", "steps", "finite", "expected"), [
    (INITIAL_FACTOR, 0, True, (INITIAL_FACTOR, 1)),
    (8, 17, False, (4, 0)),
    (8, GROWTH_INTERVAL - 2, True, (8, GROWTH_INTERVAL - 1)),
    (8, GROWTH_INTERVAL - 1, True, (16, 0)),
    (1, 3, False, (1, 0)),
])
def test_it_follows_overflows(factor, steps, finite, expected):
    scale = LossScale(jnp.float32(factor), jnp.int32(steps)).updated(jnp.array(finite))
    assert (float(scale.factor), int(scale.steps)) == expected
    assert scale.factor.dtype == np.float32 and scale.steps.dtype == np.int32


def test_an_overflow_skips_the_step_and_halves_the_scale():
    x = C.input_variable(1)
    w, b = C.parameter((1, 1), init=1), C.parameter(1)
    z = C.layers.BatchNormalization(init_scale=1)(C.times(x, w) + b)
    loss = C.square(C.times(x, w) + b) + 0 * z
    trainer = C.Trainer(None, (loss, None), C.momentum_sgd(loss.parameters, 0.01, 0.9), precision="float16")
    trainer.train_minibatch({x: [[0.1], [0.2]]})
    before = values(trainer)
    trainer.train_minibatch({x: [[1e6], [1.0]]})
    assert trainer.pending.value.scale.factor == 2**14
    trained = values(trainer)
    for old, now in zip(before, trained, strict=True):
        np.testing.assert_array_equal(old, now)
    assert all(np.isfinite(c.value).all() for c in loss.constants)
    trainer.train_minibatch({x: [[0.1], [0.2]]})
    assert (values(trainer)[0] != trained[0]).any()


def test_the_scale_grows_after_2000_finite_steps():
    scale = LossScale(np.float32(8), np.int32(1998))
    for finite, expected in [(True, (8, 1999)), (True, (16, 0)), (False, (8, 0)), (True, (8, 1))]:
        scale = scale.updated(finite)
        assert (float(scale.factor), int(scale.steps)) == expected


def test_checkpoints_store_the_scale(tmp_path):
    saved, restored = network(precision="float16"), network(precision="float16")
    saved[0].pending.value = Accumulated(scale=LossScale(np.float32(4), np.int32(7)))
    saved[0].save_checkpoint(tmp_path / "t")
    restored[0].restore_from_checkpoint(tmp_path / "t")
    assert tuple(map(float, restored[0].pending.value.scale)) == (4, 7)


def test_small_gradients_survive_in_float16():
    x, w = C.input_variable(1), C.parameter((1, 1), init=0)
    loss = C.reduce_sum(1e-9 * C.times(x, w))
    trainer = C.Trainer(None, (loss, None), C.sgd([w], 1.0), precision="float16")
    trainer.train_minibatch({x: [[1.0]]})
    assert w.value.item() == pytest.approx(-1e-9, rel=0.05)
