"""Evaluation of functions: values, and gradients of chosen variables."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from tests.graph.parts import parts


def test_forward_and_backward():
    x = C.input_variable(3, needs_gradient=True)
    f = x * x * 2
    state, values = f.forward({x: np.ones((2, 3))}, [f.output], [f.output])
    np.testing.assert_array_equal(values[f.output], 2 * np.ones((2, 3)))
    gradients = f.backward(state, {f.output: 3 * np.ones((2, 3))}, {x})
    np.testing.assert_array_equal(gradients[x], 12 * np.ones((2, 3)))
    assert f.forward({x: np.ones((2, 3))})[0] is None


def test_grad_with_root_chosen_variables_and_outputs():
    x, W, b, W2 = parts()
    hidden = C.times(x, W)
    loss = C.times(hidden + b, W2)
    W2.value = np.eye(2)
    data = {x: np.ones((4, 3))}
    gradients, value = loss.grad(data, wrt=[W, b], outputs=[hidden.output])
    np.testing.assert_array_equal(gradients[W], 4 * np.ones((3, 2)))
    np.testing.assert_array_equal(gradients[b], [4, 4])
    np.testing.assert_array_equal(value, np.zeros((4, 2)))
    np.testing.assert_array_equal(loss.grad(data, wrt=[W], grad_root=hidden.output), 4 * np.ones((3, 2)))
    with pytest.raises(ValueError, match="needs_gradient == True"):
        loss.grad(data)


@pytest.mark.parametrize("is_fed", [True, False])
def test_what_no_output_depends_on_has_gradients_of_zero_in_the_shape_of_its_data(is_fed):
    x, y, p = C.input_variable(2), C.sequence.input_variable((), name="y"), C.parameter(3)
    a, b = C.placeholder(), C.placeholder()
    f = C.as_block(C.combine([a * 2, b * p]), [(a, x), (b, y)], "two").outputs[0]
    data = {x: np.ones((2, 2), np.float32)}
    fed = {y: [np.ones(3, np.float32), np.ones(1, np.float32)]} if is_fed else {}
    found = C.reduce_sum(f).grad({**data, **fed}, wrt=[x, y, p])
    np.testing.assert_array_equal(found[x], np.full((2, 2), 2))
    np.testing.assert_array_equal(found[p], np.zeros(3))
    assert [v.tolist() for v in found[y]] == ([[0, 0, 0], [0]] if is_fed else [[], []])


def test_sparse_values_are_spliced():
    x = C.input_variable(2, is_sparse=True)
    data = csr_matrix(np.array([[1, 0], [0, 2], [3, 4]], np.float32))
    for f in (C.splice(x, x), C.splice(x, x, axis=-2)):
        np.testing.assert_array_equal(f.eval({x: data}).reshape(3, -1), np.tile(data.toarray(), 2))


def test_sparse_data_and_aliases_of_them_are_returned_sparse():
    x, s = C.input_variable(3, is_sparse=True), C.sequence.input_variable(3, is_sparse=True)
    data = csr_matrix(np.array([[1, 0, 0], [0, 2, 0]], np.float32))
    for f in (C.combine([x]), C.alias(C.alias(x)), C.layers.Label("l")(x)):
        value = f.eval({x: data})
        assert isinstance(value, csr_matrix)
        np.testing.assert_array_equal(value.toarray(), data.toarray())
        assert f.eval({x: data}, as_numpy=False).is_sparse
    assert [v.shape for v in C.alias(s).eval({s: [data, data[:1]]})] == [(2, 3), (1, 3)]
    assert isinstance(C.stop_gradient(x).eval({x: data}), np.ndarray)  # as in CNTK
