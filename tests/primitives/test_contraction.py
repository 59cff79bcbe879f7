"""Sums of products with a broadcast factor: computed as matrix products, with the values of the composition."""

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.lower import partial_eval, scans
from cntkjax.engine.plan import rewrite
from cntkjax.engine.plan.plan import Plan

LENGTHS = (3, 1, 4, 2)
RNG = np.random.default_rng(5)
BEGIN = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order_of_tests():
    RNG.bit_generator.state = BEGIN


# shapes of the factors, axes of the sum
SPREAD = {
    "weights of rows": ((4, 1), (4, 3), 0),
    "the larger first": ((4, 3), (4, 1), 0),
    "fewer axes": ((3,), (4, 3), 1),
    "two axes": ((2, 1, 3), (2, 4, 3), (0, -1)),
    "each lacks another axis": ((2, 1, 3), (2, 4, 1), 0),
    "a reduced axis that only one has": ((4, 1, 1), (4, 5, 3), (0, 1)),
}
PLAIN = {
    "equal shapes": ((4, 3), (4, 3), 0),
    "nothing contracted": ((4, 1), (1, 3), 0),
    "one number": ((1, 1), (4, 3), 1),
}


def names(function):
    return [node.primitive.name for node in Plan(function.outputs).nodes]


def sequences(shape, dtype):
    return [RNG.standard_normal((n, *shape)).astype(dtype) for n in LENGTHS]


def samples(shape, dtype):
    return RNG.standard_normal((len(LENGTHS), *shape)).astype(dtype)


KINDS = {  # the constructor of an input and of its data, for each factor
    "samples": [(C.input_variable, samples)] * 2,
    "sequences": [(C.sequence.input_variable, sequences)] * 2,
    "sequences and one value for each": [(C.sequence.input_variable, sequences), (C.input_variable, samples)],
}


def spread(value, like):
    return C.sequence.broadcast_as(value, like) if like.dynamic_axes != value.dynamic_axes else value


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SPREAD)
def test_values_and_gradients_equal_those_of_the_composition(case, kind, dtype, monkeypatch):
    *shapes, axes = SPREAD[case]
    inputs = [make(shape, dtype, needs_gradient=True) for (make, _), shape in zip(KINDS[kind], shapes, strict=True)]
    feed = {x: draw(x.shape, dtype) for x, (_, draw) in zip(inputs, KINDS[kind], strict=True)}

    def computed():
        total = C.reduce_sum(inputs[0] * spread(inputs[1], inputs[0]), axes)
        weighted = C.reduce_sum(C.sin(total), C.Axis.all_axes())
        values, gradients = total.eval(feed), weighted.grad(feed, wrt=inputs)
        return names(total), [*values, *(a for x in inputs for a in gradients[x])]

    nodes, actual = computed()
    assert "Contraction" in nodes and not {"ElementTimes", "ReduceElements"} & set(nodes)
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    nodes, expected = computed()
    assert {"ElementTimes", "ReduceElements"} <= set(nodes)
    tolerance = 1e-1 if dtype is np.float16 else 1e-5
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", PLAIN)
def test_products_that_are_no_matrix_product_are_not_rewritten(case):
    *shapes, axes = PLAIN[case]
    x, y = (C.input_variable(shape) for shape in shapes)
    total = C.reduce_sum(x * y, axes)
    assert "Contraction" not in names(total)
    a, b = (samples(shape, np.float32) for shape in shapes)
    np.testing.assert_allclose(total.eval({x: a, y: b}), np.sum(a * b, axis=axes + 1, keepdims=True), rtol=1e-5)


def test_other_reductions_sparse_factors_and_dynamic_axes_are_not_rewritten():
    x, y = C.input_variable((4, 1)), C.input_variable((4, 3))
    sparse = C.input_variable((4, 3), is_sparse=True)
    for total in (
        C.reduce_max(x * y, 0), C.reduce_sum(x + y, 0), C.reduce_sum(x * sparse, 0),
        C.reduce_sum(x * y, C.Axis.all_static_axes()), C.reduce_sum(x * y, C.Axis.all_axes()),
    ):
        assert "Contraction" not in names(total)


def test_the_products_inside_can_be_evaluated():
    x, y = C.input_variable((2, 1)), C.input_variable((2, 3))
    products = x * y
    both = C.combine([products, C.reduce_sum(products, 0)])
    a, b = samples((2, 1), np.float32), samples((2, 3), np.float32)
    values = both.eval({x: a, y: b})
    np.testing.assert_allclose(values[products.output], a * b, rtol=1e-6)
    np.testing.assert_allclose(values[both.outputs[1]], np.sum(a * b, axis=1, keepdims=True), rtol=1e-5)


def attention():
    """A recurrence that attends to all of another sequence in each step, its feeds, and an input with a gradient."""
    letters = C.sequence.input_variable(3, sequence_axis=C.Axis("letters"), needs_gradient=True)
    symbols = C.sequence.input_variable(2, sequence_axis=C.Axis("symbols"))
    attend = C.layers.AttentionModel(5, init=C.normal(0.5, seed=1))
    unit = C.layers.GRU(4, init=C.normal(0.5, seed=2))

    @C.Function
    def decode(symbols, letters):
        @C.Function
        def step(state, symbol):
            return unit(state, C.splice(symbol, attend(letters, state)))

        return C.layers.Recurrence(step)(symbols)

    decoded = decode(symbols, letters)
    feed = {letters: [RNG.standard_normal((n, 3)).astype(np.float32) for n in (4, 2, 5)],
            symbols: [RNG.standard_normal((n, 2)).astype(np.float32) for n in (3, 5, 1)]}
    return decoded, feed, letters


@pytest.mark.usefixtures("grid")
def test_attention_has_the_same_gradients(monkeypatch):
    decoded, feed, letters = attention()
    total = C.reduce_sum(C.sin(decoded), C.Axis.all_axes())

    def gradients():
        by_variable = total.grad(feed, wrt=[letters, *total.parameters])
        return [
            a for v in (letters, *total.parameters) for a in (by_variable[v] if v is letters else [by_variable[v]])
        ]

    assert "Contraction" in names(decoded)
    actual = gradients()
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr(partial_eval, "NARROW", np.inf)
    total = C.reduce_sum(C.sin(decoded * 1), C.Axis.all_axes())
    assert "Contraction" not in names(total)
    for a, b in zip(actual, gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_attention_saves_no_array_of_all_steps_and_all_positions(monkeypatch):
    """Steps 5, rows 3, positions 5: neither tanh of all scores [.., 5] nor the weighted values [.., 3] are stacked."""
    stacked = []
    split_step = scans.split_step

    def recording(*arguments):
        split, y_tree = split_step(*arguments)
        stacked.extend(v.aval.shape for v in split.forward.outvars)
        return split, y_tree

    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr(scans, "split_step", recording)
    decoded, feed, letters = attention()
    C.reduce_sum(decoded, C.Axis.all_axes()).grad(feed, wrt=[letters])
    assert stacked and not {(3, 5, 5), (3, 5, 3)} & set(stacked)
    jax.clear_caches()
