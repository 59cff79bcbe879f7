"""Scans that save each residual once: the gradients are those of JAX, with fewer arrays."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import cntkjax as C
from cntkjax.engine.lower import scans
from cntkjax.engine.lower.scans import unrolled_steps
from cntkjax.engine.xla.platform import lowering_for

TIME, ROWS, SIZE = 5, 2, 3


def product(h, w, taps):
    """As a loop computes it: the gradient of the weight is computed later, from that of the tap."""
    return h @ w if taps is None else h @ lax.stop_gradient(w) + taps[0]


def lstm(weights, invariants, carry, inputs, taps):
    (h, c), (x, begins) = carry, inputs
    h, c = (jnp.where(begins[:, None], 0, state) for state in (h, c))
    z = product(h, weights[0], taps)
    gates = jnp.split(x * invariants["scale"] + z, 4, -1)
    i, f, o = (jax.nn.sigmoid(g) for g in gates[:3])
    c = f * c + i * jnp.tanh(gates[3])
    out = o * jnp.tanh(c)
    return (out, c), {"h": out}, [(h, z)]


def weight_used_twice(weights, invariants, carry, inputs, taps):
    (h, c), (x, _) = carry, inputs
    z = product(h, weights[0], taps)
    new_h = jnp.tanh(z[:, :SIZE] * x[:, :SIZE] + h * jnp.sum(weights[0]) * invariants["scale"])
    return (new_h, c), {"h": new_h, "input": x}, [(h, z)]


def decay(weights, invariants, carry, inputs, taps):
    (h, c), (x, begins) = carry, inputs
    h = lax.cond(begins[0], lambda h: h * invariants["scale"], jnp.exp, h) + x[:, :SIZE]
    return (h, c), [h], []


def weight_gradients(weights, operands, gradients):
    return [jnp.einsum("trh,tro->ho", x, d) for x, d in zip(operands, gradients, strict=True)]


def arguments(dtype=np.float32):
    random = np.random.default_rng(3)

    def draw(shape):
        return random.standard_normal(shape).astype(dtype)

    xs = (draw((TIME, ROWS, 4 * SIZE)), random.random((TIME, ROWS)) < 0.3)
    invariants = {"scale": np.array(0.7, dtype), "rows": np.arange(ROWS, dtype=np.int32)}
    return [draw((SIZE, 4 * SIZE))], invariants, (draw((ROWS, SIZE)), draw((ROWS, SIZE))), xs


@pytest.mark.parametrize(("reverse", "platform"), [(False, "cpu"), (True, "cpu"), (True, "gpu")])
@pytest.mark.parametrize("step", [lstm, weight_used_twice, decay])
def test_values_and_gradients_are_those_of_a_scan_of_jax(step, reverse, platform):
    def ours(*a):
        return scans.scan(step, *a, weight_gradients if step is not decay else lambda *_: [], reverse=reverse)

    def plain(weights, invariants, init, xs):
        return lax.scan(lambda c, x: step(weights, invariants, c, x, None)[:2], init, xs, reverse=reverse)[1]

    def loss(scan, scale, init, x, w, begins):
        ys = scan([w], {"scale": scale, "rows": jnp.arange(ROWS)}, init, (x, begins))
        return sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(ys))

    with jax.enable_x64(True), lowering_for(platform):
        (w,), invariants, init, (x, begins) = jax.tree.map(jnp.asarray, arguments(np.float64))
        jax.tree.map(np.testing.assert_array_equal, ours(*arguments()), plain(*arguments()))
        places = (1, 2, 3, 4)
        gradients, expected = (
            jax.jit(jax.grad(loss, places), static_argnums=0)(s, invariants["scale"], init, x, w, begins)
            for s in (ours, plain)
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), gradients, expected)


def test_on_gpus_a_loop_stacks_one_array_of_each_type():
    arrays = [jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 1, 5)), jnp.zeros(4), jnp.arange(3)]
    with lowering_for("gpu"):
        joined, places = scans._joined(arrays)
    assert [a.shape for a in joined] == [(6 + 10 + 4,), (3,)]
    for array, place in zip(arrays, places, strict=True):
        np.testing.assert_array_equal(scans._part(joined, place, steps=False), array)
        np.testing.assert_array_equal(scans._part([a[None] for a in joined], place)[0], array)


def test_loops_are_unrolled_within_a_budget_that_counts_the_steps_that_remain():
    assert unrolled_steps(60, 10) == 1  # on a CPU
    with lowering_for("gpu"):
        assert [unrolled_steps(steps, 30) for steps in (32, 20, 60, 8, 1)] == [16, 10, 15, 8, 1]
        assert unrolled_steps(31, 30) == 15  # and one more
        assert unrolled_steps(59, 30) == 11  # and four
        assert unrolled_steps(20, 50) == 5  # four iterations, as six and two more are, with fewer copies
        assert unrolled_steps(32, 60) == 8 and unrolled_steps(32, 5000) == 1
        (size,) = jax.export.symbolic_shape("n")
        assert unrolled_steps(size, 30) == 1


def test_a_step_of_many_activations_trains():
    """Once, each path through the step was followed: tanh reads its operand several times, so 2^n paths and more."""
    def last(sequence, tanh=np.tanh):
        h = 0
        for now in sequence:
            h = h + now
            for _ in range(12):
                h = tanh(h)
        return h

    x = C.sequence.input_variable((), needs_gradient=True)
    f = C.sequence.last(C.layers.Recurrence(lambda h, x: last([h + x], C.tanh))(x))
    data = np.array([0.7, -0.2, 0.4])
    gradients, values = f.grad({x: [data.astype(np.float32)]}, wrt=[x], outputs=[f.output])
    np.testing.assert_allclose(np.ravel(values), last(data), rtol=1e-5)
    differences = [(last(data + change) - last(data - change)) / 2e-5 for change in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(np.ravel(gradients), differences, rtol=1e-4)
