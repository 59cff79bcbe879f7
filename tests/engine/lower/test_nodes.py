"""Nodes computed one by one: types and sizes that are known only from the data."""

import numpy as np
import pytest
import scipy.sparse

import cntkjax as C


def test_an_error_of_free_dimensions_names_the_operation():
    x = C.input_variable((C.FreeDimension, C.InferredDimension))
    f = C.times(x, C.parameter(init=np.ones((2, 2), np.float32)))
    assert f.eval({x: np.ones((1, 3, 2))}).shape == (1, 3, 2)
    with pytest.raises(ValueError, match="Times: dimensions that come with the data do not fit"):
        f.eval({x: np.ones((1, 3, 5))})


def test_inferred_dimensions_pass_through_recurrences():
    x = C.sequence.input_variable((C.InferredDimension, 2))
    state = C.placeholder()
    f = x + 2 * C.sequence.past_value(state)
    f.replace_placeholders({state: f})
    data = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    (values,) = f.eval({x: [data]})
    np.testing.assert_array_equal(values, [data[0], data[1] + 2 * data[0]])


def test_constants_take_the_wider_type_of_the_other_operands():
    x = C.input_variable(2, dtype=np.float64)
    f = x + C.constant(np.array([1, 2], np.float32))
    assert f.dtype is np.float64
    assert f.eval({x: np.array([[0.1, 0.2]])}).tolist() == [[1.1, 2.2]]


def test_constants_are_not_narrowed():
    x = C.input_variable(2)
    f = x * C.constant(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="wider type"):
        f.eval({x: np.ones((1, 2), np.float32)})


def test_a_product_in_a_loop_tells_which_sizes_of_the_data_do_not_fit():
    x, h = C.sequence.input_variable(C.FreeDimension), C.placeholder()
    w = C.input_variable((C.FreeDimension, 2), dynamic_axes=[])
    f = C.tanh(C.times(C.splice(x, C.sequence.past_value(h)), w))
    f.replace_placeholders({h: f.output})
    with pytest.raises(ValueError, match="Times: dimensions that come with the data do not fit"):
        f.eval({x: [np.ones((3, 3), np.float32)], w: np.ones((2, 2), np.float32)})


def test_sparse_data_of_another_size_than_the_other_operand_are_an_error():
    free = C.FreeDimension
    sparse, x = C.input_variable(free, is_sparse=True), C.input_variable(free)
    rows = scipy.sparse.csr_matrix(np.eye(3, dtype=np.float32)[:2])
    table = C.times(sparse, C.parameter(init=np.ones((5, 4), np.float32)))
    with pytest.raises(ValueError, match=r"Times: dimensions that come with the data do not fit: \[3\] and \[5 x 4\]"):
        table.eval({sparse: rows})
    loss = C.cross_entropy_with_softmax(x, sparse)
    np.testing.assert_allclose(loss.eval({x: np.ones((2, 3), np.float32), sparse: rows}), np.log([[3], [3]]), rtol=1e-6)
    for size in (2, 7):
        with pytest.raises(ValueError, match="dimensions that come with the data do not fit"):
            loss.eval({x: np.ones((2, size), np.float32), sparse: rows})
