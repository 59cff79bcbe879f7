"""Stacks of recurrent layers against NumPy, and against what CNTK 2.7 computes with its converted stacks."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.errors import AxisError, ShapeError

RNG = np.random.default_rng(7)
GATES = {"lstm": 4, "gru": 3, "rnnTanh": 1, "rnnReLU": 1}


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def cell(kind, x, u, h, c):
    """One step: input side x and recurrent side u of the gates -> h, c."""
    if kind == "lstm":
        i, f, g, o = x + u
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind == "gru":
        r, z = sigmoid(x[:2] + u[:2])
        return (1 - z) * np.tanh(x[2] + r * u[2]) + z * h, c
    return (np.tanh if kind == "rnnTanh" else lambda v: np.maximum(v, 0))(x + u)[0], c


def stack(kind, flat, steps, hidden, layers, directions):
    """[steps, inputs] -> [steps, hidden * directions]"""
    widths = [steps.shape[1]] * directions + [hidden * directions] * directions * (layers - 1)
    rest = flat.ravel()

    def take(*shape):
        nonlocal rest
        values, rest = np.split(rest, [np.prod(shape)])
        return values.reshape(shape)

    gates = GATES[kind]
    matrices = [(take(gates, hidden, n), take(gates, hidden, hidden)) for n in widths]
    biases = [take(2, gates, hidden) for _ in widths]
    assert rest.size == 0
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            (W, R), (b, d) = matrices[layer * directions + direction], biases[layer * directions + direction]
            h = c = np.zeros(hidden)
            out = []
            for x in steps[:: -1 if direction else 1]:
                h, c = cell(kind, W @ x + b, R @ h + d, h, c)
                out.append(h)
            outputs.append(np.array(out)[:: -1 if direction else 1])
        steps = np.concatenate(outputs, 1)
    return steps


def network(kind, hidden, layers, bidirectional, inputs=3):
    x = C.sequence.input_variable(inputs, dtype=np.float64, needs_gradient=True)
    weights = C.parameter((C.InferredDimension, hidden), init=C.glorot_uniform(), dtype=np.float64)
    f = C.optimized_rnnstack(x, weights, hidden, layers, bidirectional, kind)
    weights.value = 0.5 * RNG.standard_normal(weights.shape)
    return x, weights, f


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
def test_every_sequence_starts_from_the_initial_state(kind, layers, directions):
    x, weights, f = network(kind, 2, layers, directions == 2)
    data = [RNG.standard_normal((n, 3)) for n in (4, 1, 3, 2, 2, 1)]
    for actual, steps in zip(f.eval({x: data}), data, strict=True):
        expected = stack(kind, weights.value, steps, 2, layers, directions)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnnTanh"])
def test_gradient_matches_differences(kind):
    x, weights, f = network(kind, 2, 2, True)
    data = [RNG.standard_normal((n, 3)) for n in (4, 1, 3, 2)]
    loss = C.reduce_sum(f * f * f)
    gradients = loss.grad({x: data}, wrt=[x, weights])

    def total(steps, values):
        return sum(np.sum(stack(kind, values, s, 2, 2, 2) ** 3) for s in steps)

    direction = RNG.standard_normal(weights.shape)
    ends = [total(data, weights.value + sign * 1e-5 * direction) for sign in (1, -1)]
    np.testing.assert_allclose(np.sum(gradients[weights] * direction), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
    moves = [RNG.standard_normal(s.shape) for s in data]
    ends = [total([s + sign * 1e-5 * m for s, m in zip(data, moves, strict=True)], weights.value) for sign in (1, -1)]
    actual = sum(np.sum(g * m) for g, m in zip(gradients[x], moves, strict=True))
    np.testing.assert_allclose(actual, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


RECORDED = {  # of CNTK 2.7: two layers in both directions, hidden size 2, weights sin(0), sin(1), ...
    "lstm": [[0.015498, 0.012505, 0.075957, 0.099195], [0.002844, 0.019045, 0.143776, -0.190819],
             [0.018238, 0.031419, 0.058387, -0.159085]],
    "rnnTanh": [[-0.743509, -0.963545, -0.712618, -0.887214], [-0.803915, -0.590197, 0.34213, -0.212236],
                [-0.096936, -0.968182, 0.166249, -0.727245]],
}


@pytest.mark.parametrize("kind", RECORDED)
def test_weights_are_laid_out_as_in_cntk(kind):
    x = C.sequence.input_variable(2)
    weights = C.parameter((C.InferredDimension, 2), init=C.glorot_uniform())
    f = C.optimized_rnnstack(x, weights, 2, 2, True, kind)
    weights.value = np.sin(np.arange(np.prod(weights.shape))).reshape(weights.shape).astype(np.float32)
    np.testing.assert_allclose(f.eval({x: [[[1, -1], [0.5, 2], [0, 1]]]})[0], RECORDED[kind], atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "layers", "bidirectional", "rows"),
    [("lstm", 1, False, 36), ("lstm", 2, True, 184), ("gru", 2, False, 57), ("rnnReLU", 2, True, 46)],
)
def test_the_size_of_the_weights_is_inferred(kind, layers, bidirectional, rows):
    """As CNTK 2.7 infers it."""
    _, weights, f = network(kind, 4, layers, bidirectional)
    assert (weights.shape, f.shape) == ((rows, 4), (8 if bidirectional else 4,))


def test_mismatches_are_reported_when_the_graph_is_built():
    x, weights = C.sequence.input_variable(3), C.parameter((10, 4))
    with pytest.raises(ShapeError, match="takes 144 weights, not 40"):
        C.optimized_rnnstack(x, weights, 4, 1)
    with pytest.raises(AxisError, match="no sequence axis"):
        C.optimized_rnnstack(C.input_variable(3), weights, 4, 1)
    with pytest.raises(ValueError, match='unsupported recurrent_op value "foo"'):
        C.optimized_rnnstack(x, weights, 4, 1, recurrent_op="foo")
