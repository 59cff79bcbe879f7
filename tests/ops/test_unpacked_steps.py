"""Unpacked sequences together with operands of a fixed size: the number of steps is that of the longest sequence."""

from itertools import pairwise

import numpy as np
import pytest

import cntkjax as C

S = C.sequence
STEPS = 5
MINIBATCHES = ((8, 3), (5, 2), (5, 3, 1), (5, 5), (5, 2))  # the first compiles a program with room for all others


def numbers(*shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


a = S.input_variable(2, needs_gradient=True)
b = S.input_variable(2, sequence_axis=C.Axis("others"))
u, mask = S.unpack(a, 0).outputs
v = S.unpack(b, 0, no_mask_output=True)
left, matrix, column, ids = numbers(4, STEPS), numbers(STEPS, 2), numbers(STEPS, 1), np.float32([0, 4, 2, 2])
flat, planes, hot = numbers(2 * STEPS, 3), numbers(3, STEPS, 2), np.eye(STEPS, dtype=np.float32)[ids.astype(int)]
lower = np.tril(np.ones((STEPS, STEPS), np.float32))
OPERATIONS = {
    "constant": (C.times(C.constant(left), u), lambda x, m: left @ x),
    "parameter": (C.times(C.parameter(init=left), u), lambda x, m: left @ x),
    "doubled": (C.times(C.constant(left), 2 * u), lambda x, m: 2 * left @ x),
    "vector": (C.times(C.constant(left[0]), u), lambda x, m: left[0] @ x),
    "softmax": (C.times(C.softmax(C.constant(left), 1), u),
                lambda x, m: np.exp(left) / np.exp(left).sum(1, keepdims=True) @ x),
    "one-hot rows": (S.last(C.times(S.broadcast_as(C.one_hot(C.constant(ids), STEPS), a), u)), lambda x, m: hot @ x),
    "transposed": (C.times(C.transpose(u, (1, 0)), C.constant(left.T)), lambda x, m: x.T @ left.T),
    "times_transpose": (C.times_transpose(C.constant(left), C.transpose(u, (1, 0))), lambda x, m: left @ x),
    "mask": (C.times(mask, C.constant(matrix)) + 0 * S.first(a), lambda x, m: m @ matrix),
    "flattened": (C.times(C.reshape(u, (-1,)), C.constant(flat)), lambda x, m: x.ravel() @ flat),
    "running sums": (C.times(C.constant(lower), u), lambda x, m: lower @ x),
    "product": (C.reduce_sum(u * C.parameter(init=matrix), 0), lambda x, m: (x * matrix).sum(0, keepdims=True)),
    "column": (C.reduce_sum(u * C.constant(column), 0), lambda x, m: (x * column).sum(0, keepdims=True)),
    "contraction": (C.reduce_sum(C.reshape(u, (1, -1, 2)) * C.constant(planes), (1, 2)),
                    lambda x, m: (x * planes).sum((1, 2), keepdims=True)),
    "joined": (C.reduce_sum(C.splice(u, C.constant(matrix), axis=1) * 2, 0),
               lambda x, m: 2 * np.hstack([x, matrix]).sum(0, keepdims=True)),
    "back to sequences": (C.reduce_sum(S.reduce_sum(C.to_sequence_like(C.times(C.constant(lower), u), a))),
                          lambda x, m: ((lower @ x) * m[:, None]).sum()),
    "halves of the elements": (C.reduce_sum(C.reshape(u, (2, -1)), 1),
                               lambda x, m: x.reshape(2, -1).sum(1, keepdims=True)),
}


def sequences(lengths):
    return [numbers(n, 2) * (i + 1) for i, n in enumerate(lengths)]


def padded(sequence, longest):
    present = np.arange(longest) < len(sequence)
    return np.pad(sequence, ((0, longest - len(sequence)), (0, 0))), present.astype(sequence.dtype)


@pytest.mark.parametrize("name", OPERATIONS)
def test_steps_meet_a_fixed_size(name):
    f, expected = OPERATIONS[name]
    reduced = C.reduce_sum(f)
    for lengths in MINIBATCHES:
        xs = sequences(lengths)
        if max(lengths) != STEPS:
            if name != "halves of the elements":
                with pytest.raises(ValueError, match=r"\b(8|16)\b"):
                    f.eval({a: xs})
            continue
        values = [expected(*padded(x, STEPS)) for x in xs]
        np.testing.assert_allclose(f.eval({a: xs}), values, rtol=1e-5, atol=1e-6)
        for x, gradient in zip(xs, reduced.grad({a: xs}), strict=True):
            np.testing.assert_allclose(gradient, numeric_gradient(expected, x), rtol=1e-4, atol=1e-4)


def numeric_gradient(f, x):
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        around = []
        for change in (-1e-3, 1e-3):
            moved = x.astype(np.float64)
            moved[place] += change
            around.append(np.sum(f(*padded(moved, STEPS))))
        gradient[place] = np.diff(around)[0] / 2e-3
    return gradient


def test_fixed_sizes_that_are_fed_meet_the_longest_sequence():
    x = C.input_variable((4, C.FreeDimension))
    f = C.times(x, u)
    for lengths in ((8, 3), (5, 2), (5, 5), (6, 1)):
        longest, xs = max(lengths), sequences(lengths)
        factors = numbers(2, 4, longest)
        expected = [k @ padded(s, longest)[0] for k, s in zip(factors, xs, strict=True)]
        np.testing.assert_allclose(f.eval({x: factors, a: xs}), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("f", [
    C.times(C.transpose(u, (1, 0)), v), C.reduce_sum(u * v, 0), C.reduce_sum(C.reshape(u, (-1, 1, 2)) * v[0:1]),
], ids=["times", "product", "sum"])
def test_steps_of_different_sequences_meet_only_if_the_longest_are_equal(f):
    programs = [((8, 3), (8, 2)), ((5, 2), (1, 5)), ((6, 6), (6, 5))]
    for of_a, of_b in programs:
        xs, ys = sequences(of_a), sequences(of_b)
        pairs = [(padded(x, max(of_a))[0], padded(y, max(of_b))[0]) for x, y in zip(xs, ys, strict=True)]
        values = f.eval({a: xs, b: ys})
        expected = {
            (2, 2): lambda x, y: x.T @ y, (1, 2): lambda x, y: (x * y).sum(0, keepdims=True),
            (): lambda x, y: (x * y[0]).sum(),
        }[f.shape]
        np.testing.assert_allclose(values, [expected(x, y) for x, y in pairs], rtol=1e-5, atol=1e-6)
    if f.shape:
        for of_a, of_b in pairwise(n for pair in programs for n in pair):
            if max(of_a) != max(of_b):
                with pytest.raises(ValueError, match="do not fit"):
                    f.eval({a: sequences(of_a), b: sequences(of_b)})
