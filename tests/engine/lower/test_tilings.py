"""Slices in a loop that tile their operand are taken at once, with the same values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.lower.tilings import tilings_of
from cntkjax.engine.plan.parts import Loop
from cntkjax.engine.plan.plan import Plan
from tests.engine.lower.test_loops import sequences


@pytest.mark.parametrize(
    ("slices", "tiled"), [([(0, 1), (3, 4), (1, 3)], 3), ([(0, 2), (1, 4)], 0), ([(0, 2), (2, 3)], 0)], ids=str
)
def test_slices_that_tile_a_state_are_split_at_once(grid, slices, tiled):
    x, state = C.sequence.input_variable(4, needs_gradient=True), C.placeholder()
    h = x + C.sequence.past_value(state)
    out = C.tanh(h) + C.tanh(sum((i + 1) * C.reduce_sum(C.slice(h, 0, *bounds)) for i, bounds in enumerate(slices)))
    out.replace_placeholders({state: out.output})
    (loop,) = [part for part in Plan(out.outputs).parts if isinstance(part, Loop)]
    assert len(tilings_of(loop.nodes)) == tiled
    data = sequences([3, 2], 4)

    def reference(d):
        before, states = jnp.zeros(4), []
        for now in d:
            h = now + before
            before = jnp.tanh(h) + jnp.tanh(sum((i + 1) * h[a:b].sum() for i, (a, b) in enumerate(slices)))
            states.append(before)
        return jnp.stack(states)

    for gradient, d in zip(out.grad({x: data}, wrt=[x]), data, strict=True):
        np.testing.assert_allclose(gradient, jax.grad(lambda d: reference(d).sum())(d), rtol=1e-4, atol=1e-5)
