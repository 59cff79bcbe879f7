"""The factor of the loss in float16: halved by an overflow, doubled after many steps without one."""

import jax.numpy as jnp
import numpy as np
import pytest

from cntkjax.engine.train.loss_scale import GROWTH_INTERVAL, INITIAL_FACTOR, LossScale


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
