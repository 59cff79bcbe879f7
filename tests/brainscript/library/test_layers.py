"""Layers of the library against their formulas."""

import numpy as np
import pytest

from cntkjax import combine
from tests.brainscript.language.descriptions import build


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("out", "cell", "options"), [
    ((3,), (3,), ""), ((3,), (5,), ", cellShape=5"), ((3, 2), (3, 2), ""), ((3, 2), (5, 2), ", cellShape=(5 : 2)"),
])
def test_sizes_of_an_lstm_may_be_vectors(out, cell, options):
    """As Microsoft's page says; the gates lie beside each other along the first dimension."""
    size = " : ".join(map(str, out))
    network = build(f"x = Input {{4}} ; h = RecurrentLSTMLayer {{({size}){options}}} (x) ; outputNodes = (h)")
    (name,) = network.roles["output"]
    w, u, b, p = (network.nodes[f"h.lstm.{each}"].value.T if f"h.lstm.{each}" in network.nodes else None
                  for each in "WHbP")  # first dimension first
    f = combine([network.nodes[name]])
    data = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    (found,) = f.eval({f.arguments[0]: [data]})
    h, c = np.full(out, 0.1), np.full(cell, 0.1)
    assert (p is not None) == (cell != out)
    for x, result in zip(data, found, strict=True):
        total = b + np.tensordot(w, x, 1) + np.tensordot(u, h, len(out))
        enters, values, forgets, shows = np.split(total, 4)
        c = sigmoid(forgets) * c + sigmoid(enters) * np.tanh(values)
        h = sigmoid(shows) * np.tanh(c)
        h = h if p is None else np.tensordot(p, h, len(cell))
        np.testing.assert_allclose(result.T, h, rtol=1e-4, atol=1e-6)


def test_parallel_combines_what_functions_make_of_the_same_operand():
    network = build("x = Input {2} ; y = Parallel ((a => 2 .* a) : (a => a + a), Splice) (x) ; outputNodes = (y)")
    (name,) = network.roles["output"]
    f = combine([network.nodes[name]])
    np.testing.assert_array_equal(f.eval({f.arguments[0]: np.float32([[1, 3]])}), [[2, 6, 2, 6]])
