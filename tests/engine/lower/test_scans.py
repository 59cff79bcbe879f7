"""Scans that keep once what their gradients need: the gradients of jax's own, with fewer arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cntkjax.engine.lower import scans

TIME, ROWS, SIZE = 5, 2, 3


def product(h, w, taps):
    """As a loop makes it: the gradient of the weight is collected later, from the tap."""
    return h @ w if taps is None else h @ lax.stop_gradient(w) + taps[0]


def lstm(weights, given, carry, now, taps):
    (h, c), (x, begins) = carry, now
    h, c = (jnp.where(begins[:, None], 0, state) for state in (h, c))
    z = product(h, weights[0], taps)
    gates = jnp.split(x * given["scale"] + z, 4, -1)
    i, f, o = (jax.nn.sigmoid(g) for g in gates[:3])
    c = f * c + i * jnp.tanh(gates[3])
    out = o * jnp.tanh(c)
    return (out, c), {"h": out}, [(h, z)]


def weight_used_twice(weights, given, carry, now, taps):
    (h, c), (x, _) = carry, now
    z = product(h, weights[0], taps)
    after = jnp.tanh(z[:, :SIZE] * x[:, :SIZE] + h * jnp.sum(weights[0]) * given["scale"])
    return (after, c), {"after": after, "input": x}, [(h, z)]


def decays(weights, given, carry, now, taps):
    (h, c), (x, begins) = carry, now
    h = lax.cond(begins[0], lambda h: h * given["scale"], jnp.exp, h) + x[:, :SIZE]
    return (h, c), [h], []


def collect(weights, operands, gradients):
    return [jnp.einsum("trh,tro->ho", x, d) for x, d in zip(operands, gradients, strict=True)]


def arguments(dtype=np.float32):
    random = np.random.default_rng(3)

    def draw(shape):
        return random.standard_normal(shape).astype(dtype)

    steps = (draw((TIME, ROWS, 4 * SIZE)), random.random((TIME, ROWS)) < 0.3)
    given = {"scale": np.array(0.7, dtype), "rows": np.arange(ROWS, dtype=np.int32)}
    return [draw((SIZE, 4 * SIZE))], given, (draw((ROWS, SIZE)), draw((ROWS, SIZE))), steps


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("step", [lstm, weight_used_twice, decays])
def test_values_and_gradients_are_those_of_a_scan_of_jax(step, backwards):
    def ours(*a):
        return scans.scan(step, *a, collect if step is not decays else lambda *_: [], backwards=backwards)

    def plain(weights, given, first, steps):
        return lax.scan(lambda c, now: step(weights, given, c, now, None)[:2], first, steps, reverse=backwards)[1]

    def loss(scan, scale, first, x, w, begins):
        made = scan([w], {"scale": scale, "rows": jnp.arange(ROWS)}, first, (x, begins))
        return sum(jnp.sum(jnp.sin(d)) for d in jax.tree.leaves(made))

    with jax.enable_x64(True):
        (w,), given, first, (x, begins) = jax.tree.map(jnp.asarray, arguments(np.float64))
        jax.tree.map(np.testing.assert_array_equal, ours(*arguments()), plain(*arguments()))
        places = (1, 2, 3, 4)
        found, expected = (
            jax.jit(jax.grad(loss, places), static_argnums=0)(s, given["scale"], first, x, w, begins)
            for s in (ours, plain)
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), found, expected)


def test_an_lstm_keeps_its_gates_its_states_and_nothing_twice():
    _, *stacked = scans._cut(lstm, *arguments()).there.outvars[1:]
    assert len(stacked) == len(["h", "h before", "c before", "i", "f", "o", "tanh of the last gate", "tanh of c"])
    assert not any(v.aval.dtype == bool for v in stacked)  # where sequences begin is known anyway


def test_only_what_has_a_gradient_is_summed_over_the_steps():
    weight, _, scale = range(3)  # the weight's is collected after the loop, numbers of rows have none
    assert scans._cut(lstm, *arguments()).moved == [scale]
    assert scans._cut(weight_used_twice, *arguments()).moved == [weight, scale]
