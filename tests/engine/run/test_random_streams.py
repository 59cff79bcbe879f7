"""Random numbers that the host draws for a program."""

import jax.numpy as jnp
import numpy as np

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.engine.run.random_streams import draw_random_state
from cntkjax.graph.streams import Streams
from cntkjax.graph.variable import relocate


def test_a_draw_that_is_repeated_gives_the_same_numbers_though_the_weights_have_moved():
    """As when they move to the device between two attempts of one evaluation."""
    weights = C.constant(np.arange(20, dtype=np.float32) + 1)
    plan = plan_of([C.random_sample(weights, 8, True, seed=98052).output])
    streams = Streams()
    (first,) = draw_random_state(plan, streams, training=False).values()
    relocate(weights, jnp.asarray(weights.value))
    (second,) = draw_random_state(plan, streams, training=False).values()
    np.testing.assert_array_equal(first.numbers, second.numbers)
    assert first.end == second.end
