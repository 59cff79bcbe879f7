"""Outputs that are constants need no program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.compilations import report
from cntkjax.engine.run.constants import constant_outputs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_filled_with_numbers_are_what_the_function_returns(dtype):
    def function(values):
        return {"zeros": [jnp.zeros_like(v) for v in values], "ones": jnp.ones((2,), jnp.int32)}

    with jax.enable_x64(dtype == np.float64):
        values = [jnp.ones((2, 3), dtype), jnp.ones(4, dtype), jnp.ones((), dtype)]
        filled, computed = constant_outputs(function, values), function(values)
        assert jax.tree.structure(filled) == jax.tree.structure(computed)
        for a, b in zip(jax.tree.leaves(filled), jax.tree.leaves(computed), strict=True):
            assert a.dtype == b.dtype and a.weak_type == b.weak_type and a.sharding == b.sharding
            assert a.committed == b.committed
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("function", [
    lambda x: x,
    lambda x: [jnp.zeros_like(x), x],
    lambda x: jnp.zeros_like(x) + x,
    lambda x: jnp.arange(3),
    lambda x: 1.5,
])
def test_other_outputs_are_left_to_a_program(function):
    assert constant_outputs(function, jnp.ones(3)) is None


def test_outputs_for_arrays_with_a_place_of_their_own_are_left_to_a_program():
    there = jax.device_put(jnp.ones(3), jax.devices()[0])
    assert constant_outputs(jnp.zeros_like, there) is None


def test_a_learner_compiles_nothing_for_its_state():
    x = C.input_variable(3)
    z = C.layers.Sequential([C.layers.Stabilizer(), C.layers.Dense(2)])(x)
    learner = C.adam(z.parameters, C.learning_parameter_schedule(0.1), C.momentum_schedule(0.9))
    trainer = C.Trainer(z, C.reduce_sum(z), learner)
    before = len(report().programs)
    trainer.train_minibatch({x: np.ones((2, 3), np.float32)})
    assert [p.text for p in report().programs[before:]] == ["the training step for minibatches of up to 2"]
