"""Products of joined operands in loops: what is known before is multiplied before, which changes nothing."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.lower import products
from cntkjax.graph.build import note_edit

SIZE = 3
LENGTHS = (4, 2, 5)
DELAYS = {"onwards": C.sequence.past_value, "backwards": C.sequence.future_value}


def weight(rows, columns=SIZE, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((rows, columns)) / 2
    return C.parameter(init=drawn, dtype=np.float64)


def number():
    return C.parameter((), init=0.7, dtype=np.float64)


# What a step makes of two inputs (sizes 2 and 4) and of the state before.
STEPS = {
    "input first": lambda x, y, h: C.tanh(C.times(C.splice(x, h), weight(2 + SIZE))),
    "state first": lambda x, y, h: C.tanh(C.times(C.splice(h, x), weight(SIZE + 2))),
    "between inputs": lambda x, y, h: C.tanh(C.times(C.splice(x, h, y, h), weight(6 + 2 * SIZE))),
    "scaled": lambda x, y, h: C.tanh(C.times(number() * C.splice(x, h), weight(2 + SIZE))),
    "two products": lambda x, y, h: (
        C.tanh(C.times(s := C.splice(x, h), weight(2 + SIZE))) * C.sigmoid(C.times(s, weight(2 + SIZE, seed=1)))
    ),
    "twice the same weight": lambda x, y, h: (
        C.tanh(C.times(C.splice(x, h), w := weight(2 + SIZE)) + C.times(C.splice(x, h * h), w))
    ),
    "two axes made": lambda x, y, h: C.reshape(C.reduce_sum(
        C.tanh(C.times(C.splice(x, h), C.reshape(weight(2 + SIZE, 2 * SIZE), (2 + SIZE, 2, SIZE)), 2)), 0), (SIZE,)),
}
WHOLE = {  # the joined operands are needed as such
    "used otherwise too": lambda x, y, h: C.tanh(
        C.times(s := C.splice(x, h), weight(2 + SIZE)) + C.reduce_sum(s * s)
    ),
    "scaled and used otherwise": lambda x, y, h: C.tanh(
        C.times(s := number() * C.splice(x, h), weight(2 + SIZE)) + C.reduce_sum(s)
    ),
    "nothing from outside": lambda x, y, h: C.tanh(x[:1] + C.times(C.splice(h, h * h), weight(2 * SIZE))),
    "joined along a new axis": lambda x, y, h: C.tanh(
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
    values, found = out.eval({v: feed[v] for v in wrt if v in feed}), total.grad(
        {v: feed[v] for v in wrt if v in feed}, wrt=wrt
    )
    return [*values, *(a for v in wrt for a in (found[v] if v in feed else [found[v]]))]


@pytest.fixture
def ahead(monkeypatch):
    """The operands that were multiplied ahead."""
    seen = []
    find = products.products_of

    def watched(*arguments):
        found, folded = find(*arguments)
        seen.extend(p.hoisted_operands for p in found.values())
        return found, folded

    monkeypatch.setattr("cntkjax.engine.lower.loops.products_of", watched)
    return seen


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("case, delay", [*((c, "onwards") for c in STEPS | WHOLE), ("between inputs", "backwards")])
def test_values_and_gradients_do_not_depend_on_what_is_multiplied_ahead(case, delay, ahead, monkeypatch):
    out, feed = recurrence((STEPS | WHOLE)[case], DELAYS[delay])
    found = results(out, feed)
    assert any(ahead) == (case in STEPS)
    ahead.clear()
    monkeypatch.setattr(products, "_is_concatenation_of_vectors", lambda *_: False)
    note_edit()
    wanted = results(C.combine(out.outputs) * 1, feed)
    assert ahead and not any(ahead)
    assert len(found) == len(wanted) > len(LENGTHS)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_what_is_joined_in_a_layer_by_a_user_is_multiplied_ahead_where_it_comes_from_outside(ahead):
    kernel, gate = C.layers.Dense(4, C.tanh), C.layers.Dense(4, C.sigmoid)

    @C.Function
    def unit(h, x):
        both = C.splice(x, h)
        return gate(both) * kernel(both)

    made = C.layers.Recurrence(unit)(C.layers.Embedding(5)(C.sequence.input_variable(7)))
    made.eval([np.eye(7, dtype=np.float32)[[1, 2, 3]]])
    assert [len(p) for p in ahead] == [1, 1]
