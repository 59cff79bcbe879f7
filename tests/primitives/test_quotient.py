"""Products with reciprocals: computed as quotients, with the values and gradients of CNTK."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.plan import rewrite

A, B = np.float32([[1, -2, 3, 0], [np.inf, 5, 1e30, 7]]), np.float32([[4, 8, 0, 0], [0, -2, 1e30, 1e-3]])


def divided(**kinds):
    a, b = (C.input_variable(4, needs_gradient=True, name=name, **kinds) for name in "ab")
    return a, b, C.element_divide(a, b)


def test_a_quotient_by_0_is_0_and_so_are_its_gradients():
    a, b, quotient = divided()
    gradients, values = quotient.grad({a: A, b: B}, [a, b], [quotient])
    np.testing.assert_allclose(values, [[0.25, -0.25, 0, 0], [np.nan, -2.5, 1, 7000]], rtol=1e-6)
    np.testing.assert_allclose(gradients[a], [[0.25, 0.125, 0, 0], [0, -0.5, 1e-30, 1000]], rtol=1e-6)
    np.testing.assert_allclose(gradients[b][:, :3], [[-0.0625, 0.03125, 0], [np.nan, -1.25, -1e-30]], rtol=1e-6)


@pytest.mark.parametrize("make", [
    lambda a, b: C.element_divide(a, b), lambda a, b: C.reciprocal(b) * a, lambda a, b: C.reciprocal(a) * (1 / b),
    lambda a, b: C.element_divide(a, C.reduce_sum(b)), lambda a, b: C.element_divide(C.sequence.last(a), b),
    lambda a, b: C.layers.Recurrence(lambda h, x: C.tanh(h / x))(b) / a,
])
def test_values_and_gradients_equal_those_of_the_product(make, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (C.sequence.input_variable(3, np.float64, needs_gradient=True, name=name) for name in "ab")
    data = {v: [rng.uniform(0.5, 2, (n, 3)) for n in (2, 4, 1)] for v in (a, b)}
    results = []
    for rules in (rewrite.NODE_RULES, {}):
        monkeypatch.setattr(rewrite, "NODE_RULES", rules)
        graph = make(a, b)
        gradients, values = graph.grad(data, [a, b], [graph])
        results.append([*values, *gradients[a], *gradients[b]])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
