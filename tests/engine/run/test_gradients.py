"""Gradients outside of training: of sparse arguments, and of batches that are padded."""

import numpy as np
import pytest
import scipy.sparse as sp

import cntkjax as C
from cntkjax import sequence as S


@pytest.mark.parametrize("input_variable", [C.input_variable, C.sequence.input_variable])
def test_gradients_of_sparse_arguments_are_dense(input_variable):
    """The first numbers are CNTK's, which supports only products here."""
    x, w = input_variable(3, is_sparse=True), C.parameter(init=np.arange(6).reshape(3, 2))
    data = sp.csr_matrix(np.array([[0, 1, 0], [2, 0, 0]], np.float32))
    feed = {x: [data] if x.sequence_axis else data}
    product, twice = C.times(x, w), C.reduce_sum(x * 2)
    np.testing.assert_array_equal(np.reshape(product.grad(feed, [x]), (2, 3)), [[1, 5, 9], [1, 5, 9]])
    np.testing.assert_array_equal(np.reshape(twice.grad(feed, [x]), (2, 3)), np.full((2, 3), 2))
    gradients = product.grad(feed, [x, w])
    assert np.reshape(gradients[x], (2, 3)).tolist() == [[1, 5, 9]] * 2
    assert gradients[w].tolist() == [[2, 2], [1, 1], [0, 0]]


FUNCTIONS = {
    "maximum": S.reduce_max,
    "less the maximum": lambda x: x - S.broadcast_as(S.reduce_max(x), x),
    "minimum": lambda x: -S.reduce_max(-x),
    "softmax": lambda x: S.softmax(x) * x,
    "its logarithm": lambda x: C.log(S.softmax(x)),
    "softmax beside unpacked steps": lambda x: S.softmax(x) * x + S.broadcast_as(C.reduce_max(S.unpack(x, 0, True)), x),
    "first and last": lambda x: S.first(x) / S.last(x),
    "length": lambda x: S.reduce_sum(x) / S.reduce_sum(C.ones_like(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_do_not_depend_on_the_batch_before(name):
    x = S.input_variable(2)
    inner, outer = C.parameter((2, 2), init=np.eye(2, dtype=np.float32)), C.parameter(2, init=1.0)
    output = FUNCTIONS[name](C.times(x, inner)) * outer
    loss = C.square(C.reduce_sum(output) if len(output.dynamic_axes) == 1 else S.reduce_sum(C.reduce_sum(output)))
    texts = list(np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32))

    def gradients(batch):
        return loss.grad({x: batch}, wrt=[inner, outer])

    separate = [gradients([text]) for text in texts]
    gradients(texts[:4])
    joint = gradients(texts)
    for p in (inner, outer):
        np.testing.assert_allclose(joint[p], sum(g[p] for g in separate), rtol=1e-4, atol=1e-4)


def test_gradients_of_what_a_root_does_not_depend_on_have_the_sizes_of_the_data():
    free = C.FreeDimension
    static, rows = C.input_variable(free, dynamic_axes=[]), C.input_variable((2, free))
    sparse, steps = C.input_variable(free, is_sparse=True), S.input_variable(free, is_sparse=True)
    x, matrix = C.input_variable(2), sp.csr_matrix(np.eye(3, dtype=np.float32)[:2])
    feed = {x: np.ones((2, 2)), static: np.ones(4), rows: np.ones((2, 2, 5)), sparse: matrix, steps: [matrix] * 2}
    f = C.combine([C.reduce_sum(x), static * 2, rows * 2, sparse * 2, steps * 2])
    gradients = f.grad(feed, [static, rows, sparse, steps], grad_root=f.outputs[0])
    shapes = [np.shape(gradients[v]) for v in (static, rows, sparse, steps)]
    assert shapes == [(4,), (2, 2, 5), (2, 3), (2, 2, 3)]
    assert not any(np.any(g) for g in gradients.values())
