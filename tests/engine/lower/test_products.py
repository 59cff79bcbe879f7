"""Products of concatenated operands in loops: operands from outside are multiplied before the loop."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.lower import products
from cntkjax.graph.build import note_edit

SIZE = 3
LENGTHS = (4, 2, 5)
DELAYS = {"forward": C.sequence.past_value, "backward": C.sequence.future_value}


def weight(rows, columns=SIZE, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((rows, columns)) / 2
    return C.parameter(init=drawn, dtype=np.float64)


def number():
    return C.parameter((), init=0.7, dtype=np.float64)


# The steps of loops, of two inputs (sizes 2 and 4) and the previous state.
STEPS = {
    "input first": lambda x, y, h: C.tanh(C.times(C.splice(x, h), weight(2 + SIZE))),
    "state first": lambda x, y, h: C.tanh(C.times(C.splice(h, x), weight(SIZE + 2))),
    "between inputs": lambda x, y, h: C.tanh(C.times(C.splice(x, h, y, h), weight(6 + 2 * SIZE))),
    "scaled": lambda x, y, h: C.tanh(C.times(number() * C.splice(x, h), weight(2 + SIZE))),
    "two products": lambda x, y, h: (
        C.tanh(C.times(s := C.splice(x, h), weight(2 + SIZE))) * C.sigmoid(C.times(s, weight(2 + SIZE, seed=1)))
    ),
    "the same weight twice": lambda x, y, h: (
        C.tanh(C.times(C.splice(x, h), w := weight(2 + SIZE)) + C.times(C.splice(x, h * h), w))
    ),
    "two output axes": lambda x, y, h: C.reshape(C.reduce_sum(
        C.tanh(C.times(C.splice(x, h), C.reshape(weight(2 + SIZE, 2 * SIZE), (2 + SIZE, 2, SIZE)), 2)), 0), (SIZE,)),
}
NOT_HOISTED = {  # the concatenation itself is needed, or all of it is from inside
    "also read by others": lambda x, y, h: C.tanh(
        C.times(s := C.splice(x, h), weight(2 + SIZE)) + C.reduce_sum(s * s)
    ),
    "scaled and read by others": lambda x, y, h: C.tanh(
        C.times(s := number() * C.splice(x, h), weight(2 + SIZE)) + C.reduce_sum(s)
    ),
    "nothing from outside": lambda x, y, h: C.tanh(x[:1] + C.times(C.splice(h, h * h), weight(2 * SIZE))),
    "along a new axis": lambda x, y, h: C.tanh(
        C.reshape(C.times(C.splice(C.splice(x, x[:1]), h, axis=-2), weight(SIZE)), (-1,))[:SIZE]
    ),
}


def recurrence(step, delay):
    x, y = (C.sequence.input_variable(n, np.float64, needs_gradient=True) for n in (2, 4))
    state = C.placeholder(SIZE, x.dynamic_axes)
    out = step(x, C.reconcile_dynamic_axes(y, x), delay(state))
    out = out.replace_placeholders({state: out})
    rng = np.random.default_rng(3)
    return out, {v: [rng.standard_normal((n, *v.shape)) for n in LENGTHS] for v in (x, y)}


def results(out, feed):
    total = C.reduce_sum(C.sin(out), C.Axis.all_axes())
    wrt = [v for v in feed if v in total.arguments] + list(total.parameters)
    feeds = {v: feed[v] for v in wrt if v in feed}
    gradients, values = total.grad(feeds, wrt=wrt, outputs=[out.output])
    return [*values, *(a for v in wrt for a in (gradients[v] if v in feed else [gradients[v]]))]


@pytest.fixture
def hoisted(monkeypatch):
    """The hoisted operands of each product."""
    operands = []
    products_of = products.products_of

    def watched(*arguments):
        products_of_loop, fused = products_of(*arguments)
        operands.extend(p.hoisted_operands for p in products_of_loop.values())
        return products_of_loop, fused

    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr("cntkjax.engine.lower.loops.products_of", watched)
    return operands


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize(
    "case, delay", [*((c, "forward") for c in STEPS | NOT_HOISTED), ("between inputs", "backward")]
)
def test_hoisting_changes_no_values_and_gradients(case, delay, hoisted, monkeypatch):
    out, feed = recurrence((STEPS | NOT_HOISTED)[case], DELAYS[delay])
    values = results(out, feed)
    assert any(hoisted) == (case in STEPS)
    hoisted.clear()
    monkeypatch.setattr(products, "_is_concatenation_of_vectors", lambda *_: False)
    note_edit()
    expected = results(C.combine(out.outputs) * 1, feed)
    assert hoisted and not any(hoisted)
    assert len(values) == len(expected) > len(LENGTHS)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_inputs_that_a_user_concatenates_with_the_state_are_hoisted(hoisted):
    kernel, gate = C.layers.Dense(4, C.tanh), C.layers.Dense(4, C.sigmoid)

    @C.Function
    def unit(h, x):
        both = C.splice(x, h)
        return gate(both) * kernel(both)

    model = C.layers.Recurrence(unit)(C.layers.Embedding(5)(C.sequence.input_variable(7)))
    model.eval([np.eye(7, dtype=np.float32)[[1, 2, 3]]])
    assert [len(p) for p in hoisted] == [1, 1]


def test_products_of_one_matrix_with_many_samples_are_right_whatever_computes_their_sums():
    """YNNPACK computes the 656th and later ones wrongly, together with the operation after them."""
    random = np.random.default_rng(0)
    x, w = C.input_variable(10), C.parameter((50, 10), init=random.standard_normal((50, 10)).astype(np.float32))
    data = random.standard_normal((700, 10)).astype(np.float32)
    for product in (C.times_transpose(w, x), C.reduce_sum(w * x, axis=1)):
        f = C.reshape(product, 50) * 2 + 1
        np.testing.assert_allclose(f.eval({x: data}), 2 * data @ w.value.T + 1, rtol=1e-5, atol=1e-5)
