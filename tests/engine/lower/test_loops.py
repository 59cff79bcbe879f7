"""Recurrent loops against the same recurrence written step by step in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C

LENGTHS = [[4], [5, 2, 3], [1, 1, 7, 2, 2, 3]]


def sequences(lengths, width, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, width)).astype(np.float32) for n in lengths]


def rnn(x, U, W, initial_state=None, backwards=False, step=1):
    delay = C.sequence.future_value if backwards else C.sequence.past_value
    h = C.placeholder()
    out = C.tanh(C.times(x, U) + C.times(delay(h, initial_state, step), W))
    return out.replace_placeholders({h: out})


def rnn_reference(x, U, W, initial=0.0, backwards=False, step=1):
    states = [jnp.full(W.shape[0], initial) if np.ndim(initial) == 0 else jnp.asarray(initial)] * step
    outputs = []
    for now in x[::-1] if backwards else x:
        states.append(jnp.tanh(now @ U + states[-step] @ W))
        outputs.append(states[-1])
    return jnp.stack(outputs[::-1] if backwards else outputs)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("step", [1, 3])
def test_values_and_gradients_of_a_recurrence(grid, lengths, backwards, step):
    rng = np.random.default_rng(1)
    u, w = (rng.standard_normal(s).astype(np.float32) * 0.5 for s in ((3, 4), (4, 4)))
    x = C.sequence.input_variable(3, needs_gradient=True)
    U, W = C.parameter(init=u), C.parameter(init=w)
    model = rnn(x, U, W, 0.25, backwards, step)
    data = sequences(lengths, 3)

    def loss(u, w, data):
        return sum(jnp.sum(rnn_reference(d, u, w, 0.25, backwards, step)) for d in data)

    expected = jax.grad(loss, (0, 1, 2))(u, w, data)
    gradients, values = model.grad({x: data}, wrt=[U, W, x], outputs=[model.output])
    for value, sequence in zip(values, data, strict=True):
        np.testing.assert_allclose(value, rnn_reference(sequence, u, w, 0.25, backwards, step), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradients[U], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[W], expected[1], rtol=1e-4, atol=1e-5)
    for value, reference in zip(gradients[x], expected[2], strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-5)


def test_initial_state_from_a_batch_variable(grid):
    u, w = np.full((2, 3), 0.3, np.float32), np.full((3, 3), 0.2, np.float32)
    x, start = C.sequence.input_variable(2), C.input_variable(3, needs_gradient=True)
    model = rnn(x, C.constant(u), C.constant(w), start)
    data, states = sequences([3, 1, 5], 2), sequences([1, 1, 1], 3, seed=5)
    states = [s[0] for s in states]
    feeds = {x: data, start: np.stack(states)}
    for value, sequence, state in zip(model.eval(feeds), data, states, strict=True):
        np.testing.assert_allclose(value, rnn_reference(sequence, u, w, state), rtol=1e-5, atol=1e-6)
    gradients = [
        jax.grad(lambda s, d=d: jnp.sum(rnn_reference(d, u, w, s)))(s) for s, d in zip(states, data, strict=True)
    ]
    np.testing.assert_allclose(model.grad(feeds, wrt=[start]), gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_recurrence_begins_with_the_steps_of_a_sequence_that_end_where_it_begins(grid, backwards, step):
    """The states of an encoder with the same axis. Numbers: CNTK 2.7."""
    t, h = C.sequence.input_variable(1), C.sequence.input_variable(1, needs_gradient=True)
    state = C.placeholder()
    delay = C.sequence.future_value if backwards else C.sequence.past_value
    total = t + delay(state, h, step)
    total = total.replace_placeholders({state: total})
    data = [np.arange(first, first + n, dtype=np.float32)[:, None] for n in (3, 2) for first in (1, 10)]
    feeds = {t: data[::2], h: data[1::2]}
    values, gradients = {
        (False, 1): ([[13, 15, 18], [12, 14]], [[0, 0, 3], [0, 2]]),
        (True, 1): ([[16, 15, 13], [13, 12]], [[3, 0, 0], [2, 0]]),
        (False, 2): ([[12, 14, 15], [11, 13]], [[0, 2, 1], [1, 1]]),
        (True, 2): ([[15, 12, 14], [11, 13]], [[1, 2, 0], [1, 1]]),
    }[backwards, step]
    assert [v.ravel().tolist() for v in total.eval(feeds)] == values
    assert [v.ravel().tolist() for v in total.grad(feeds, wrt=[h])] == gradients
    inside = t + h + delay(state, h, step)  # the sequence is used at each step, too
    inside = inside.replace_placeholders({state: inside})
    steps = {t: [a + b for a, b in zip(feeds[t], feeds[h], strict=True)], h: feeds[h]}
    assert [v.tolist() for v in inside.eval(feeds)] == [v.tolist() for v in total.eval(steps)]


def test_mutual_recurrence(grid):
    """a[t] = tanh(x[t] + b[t-1]), b[t] = tanh(2 a[t] + a[t-1])."""
    x = C.sequence.input_variable(2)
    b_before, a_before = C.placeholder(), C.placeholder()
    a = C.tanh(x + C.sequence.past_value(b_before))
    b = C.tanh(2 * a + C.sequence.past_value(a_before))
    b.replace_placeholders({b_before: b, a_before: a})
    data = sequences([4, 2, 1], 2)
    for value, sequence in zip(b.eval({x: data}), data, strict=True):
        before_a = before_b = np.zeros(2)
        for actual, now in zip(value, sequence, strict=True):
            now_a = np.tanh(now + before_b)
            before_b = np.tanh(2 * now_a + before_a)
            before_a = now_a
            np.testing.assert_allclose(actual, before_b, rtol=1e-5, atol=1e-6)


def test_a_recurrence_inside_another(grid):
    """The outer loop feeds the inner one and is fed by it: one strongly connected component."""
    x = C.sequence.input_variable(1)
    outer = C.placeholder()
    source = x + 0.5 * C.sequence.past_value(outer)
    inner = C.placeholder()
    running = source + 0.25 * C.sequence.past_value(inner)
    running.replace_placeholders({inner: running})
    result = C.tanh(running)
    result.replace_placeholders({outer: result})
    data = sequences([5, 3], 1)
    for value, sequence in zip(result.eval({x: data}), data, strict=True):
        before, state = 0.0, 0.0
        for actual, now in zip(value, sequence, strict=True):
            state = now + 0.5 * before + 0.25 * state
            before = np.tanh(state)
            np.testing.assert_allclose(actual, before, rtol=1e-5, atol=1e-6)


def test_several_loops_over_one_axis(grid):
    u, w = np.full((2, 3), 0.3, np.float32), np.full((3, 3), -0.2, np.float32)
    x = C.sequence.input_variable(2)
    forwards, backwards = rnn(x, C.constant(u), C.constant(w)), rnn(x, C.constant(u), C.constant(w), backwards=True)
    data = sequences([4, 1, 2], 2)
    for value, d in zip((forwards + backwards).eval({x: data}), data, strict=True):
        expected = rnn_reference(d, u, w) + rnn_reference(d, u, w, backwards=True)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_gradient_in_double_precision_matches_finite_differences(grid):
    """The large product after the loop gives the weight its whole gradient."""
    rng = np.random.default_rng(3)
    u, w = rng.standard_normal((2, 3)), rng.standard_normal((3, 3))
    x = C.sequence.input_variable(2, dtype=np.float64)
    U, W = C.parameter(init=u), C.parameter(init=w)
    model = rnn(x, U, W)
    data = [d.astype(np.float64) for d in sequences([3, 2], 2)]
    gradient = model.grad({x: data}, wrt=[W])
    at, step = (1, 2), 1e-6

    def loss(shift):
        value = w.copy()
        value[at] += shift
        W.value = value
        return sum(v.sum() for v in model.eval({x: data}))

    np.testing.assert_allclose(gradient[at], (loss(step) - loss(-step)) / (2 * step), rtol=1e-7)


def test_a_state_takes_its_free_dimension_from_any_input_of_the_loop():
    x = C.sequence.input_variable((C.FreeDimension, 4))
    weights = C.parameter(init=np.ones((4, 2), np.float32))
    summed = C.sequence.last(C.layers.Recurrence(C.plus)(C.times(x, weights)))
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_allclose(summed.eval({x: [data]})[0], data.sum((0, 2))[:, None].repeat(2, 1))


def test_convolutions_of_a_state_learn_as_the_loop_unrolled_does():
    rng = np.random.default_rng(3)
    x = C.sequence.input_variable((2, 4, 4), needs_gradient=True)
    w = C.parameter((2, 2, 3, 3), init=rng.standard_normal((2, 2, 3, 3)).astype(np.float32) / 3)
    h = C.placeholder(shape=(2, 4, 4), dynamic_axes=x.dynamic_axes)
    z = C.tanh(C.convolution(w, C.sequence.past_value(h), auto_padding=[False, True, True]) + x)
    z = z.replace_placeholders({h: z.output})
    data = [rng.standard_normal((n, 2, 4, 4)).astype(np.float32) for n in (3, 2)]
    gradients = C.reduce_sum(z).grad({x: data}, wrt=[w, x])

    def unrolled(kernel, sequences):
        total = 0.0
        for steps in sequences:
            state = jnp.zeros((1, 2, 4, 4))
            for step in steps:
                state = jnp.tanh(jax.lax.conv(state, kernel, (1, 1), "SAME") + step)
                total += state.sum()
        return total

    of_kernel, of_data = jax.grad(unrolled, (0, 1))(w.value, data)
    np.testing.assert_allclose(gradients[w], of_kernel, rtol=1e-4, atol=1e-5)
    for one, other in zip(gradients[x], of_data, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def summed(step, size, data):
    """The sum of all states of a loop, unrolled."""
    total = 0.0
    for sequence in data:
        state = jnp.zeros(size)
        for now in sequence:
            state = step(state, now)
            total += state.sum()
    return total


STEPS = {  # a step as a function of the input and the product: with C, and with jax.numpy
    "only added": lambda m, p, z: m.tanh(p + z),
    "added the other way around": lambda m, p, z: m.tanh(z + p),
    "what comes in is used again": lambda m, p, z: m.tanh(p + z) * p,
    "the product is used again": lambda m, p, z: m.tanh(p + z) + z,
    "multiplied": lambda m, p, z: m.tanh(p * z + 1),
}


@pytest.mark.parametrize("step", STEPS)
def test_gradients_of_a_loop_however_a_product_is_used(grid, step):
    make = STEPS[step]
    w = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32) / 2
    W = C.parameter(init=w)
    x, h = C.sequence.input_variable(4, needs_gradient=True), C.placeholder()
    out = make(C, x, C.times(C.sequence.past_value(h), W))
    out = out.replace_placeholders({h: out})
    data = sequences([3, 2], 4)

    def loss(w, data):
        return summed(lambda state, now: make(jnp, now, state @ w), 4, data)

    of_weight, of_data = jax.grad(loss, (0, 1))(w, data)
    gradients = out.grad({x: data}, wrt=[W, x])
    np.testing.assert_allclose(gradients[W], of_weight, rtol=1e-4, atol=1e-5)
    for one, other in zip(gradients[x], of_data, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_weight_used_twice_in_a_loop_is_the_sum_of_both_uses(grid):
    w = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32) / 2
    W, x, h = C.parameter(init=w), C.sequence.input_variable(3, needs_gradient=True), C.placeholder()
    before = C.sequence.past_value(h)
    out = C.tanh(x + C.times(before, W)) + before * C.reduce_sum(W)
    out = out.replace_placeholders({h: out})
    data = sequences([3, 2], 3)

    def loss(w):
        return summed(lambda state, now: jnp.tanh(now + state @ w) + state * w.sum(), 3, data)

    np.testing.assert_allclose(out.grad({x: data}, wrt=[W]), jax.grad(loss)(w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seen", ["by products", "by others too"])
def test_a_number_that_scales_the_operand_of_a_product_in_a_loop_has_its_gradient(grid, seen):
    w = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32) / 2
    W, s = C.parameter(init=w), C.parameter((), init=0.7)
    x, h = C.sequence.input_variable(3, needs_gradient=True), C.placeholder()
    scaled = s * C.sequence.past_value(h)
    out = C.tanh(x + C.times(scaled, W) + C.times(scaled, C.times(W, W)))
    out = out + scaled if seen == "by others too" else out
    out = out.replace_placeholders({h: out})
    data = sequences([3, 2], 3)

    def loss(w, s):
        def step(state, now):
            scaled = s * state
            return jnp.tanh(now + scaled @ w + scaled @ (w @ w)) + (scaled if seen == "by others too" else 0)

        return summed(step, 3, data)

    of_weight, of_scale = jax.grad(loss, (0, 1))(w, np.float32(0.7))
    gradients = out.grad({x: data}, wrt=[W, s])
    np.testing.assert_allclose(gradients[W], of_weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[s], of_scale, rtol=1e-4, atol=1e-5)
