"""Shapes that are inferred or free, axes converted from and to the batch axis, assignment, and invalid shapes."""

import numpy as np
import pytest
from scipy.sparse import issparse

import cntkjax as C

FREE = C.FreeDimension


@pytest.mark.parametrize(("make", "shape", "reference"), [
    (lambda x: C.reshape(x, (-1,)), (FREE,), lambda x: x.ravel()),
    (lambda x: C.reshape(x, (FREE, 3, 1)), (FREE, 3, 1), lambda x: x[..., None]),
    (lambda x: C.reshape(x, (3, -1)), (3, FREE), lambda x: x.reshape(3, -1)),
    (lambda x: C.slice(x, 0, 1, 3), (2, 3), lambda x: x[1:3]),
    (lambda x: C.slice(x, 0, 1, 0), (FREE, 3), lambda x: x[1:]),
    (lambda x: C.splice(x, x, axis=0), (FREE, 3), lambda x: np.concatenate([x, x])),
    (lambda x: C.reduce_sum(x, 0), (1, 3), lambda x: x.sum(0, keepdims=True)),
    (lambda x: C.reduce_sum(x, 1, keepdims=False), (FREE,), lambda x: x.sum(1)),
    (lambda x: C.pad(x, [(1, 1), (0, 0)]), (FREE, 3), lambda x: np.pad(x, [(1, 1), (0, 0)])),
], ids=range(9))
def test_free_dimensions_are_determined_by_the_data(make, shape, reference):
    x = C.input_variable((FREE, 3))
    f = make(x)
    assert f.shape == shape
    for size in (4, 5):
        data = np.arange(2 * size * 3, dtype=np.float32).reshape(2, size, 3)
        np.testing.assert_array_equal(f.eval({x: data}), [reference(d) for d in data])


@pytest.mark.parametrize(("make", "shape"), [
    (lambda x: C.expand_dims(x, 0), (2, 1, 3, 4)), (lambda x: C.expand_dims(x, -1), (2, 3, 4, 1)),
    (lambda x: C.expand_dims(x, -4), (1, 2, 3, 4)),
    (lambda x: C.expand_dims(x, C.Axis.new_leading_axis()), (1, 2, 3, 4)),
    (lambda x: C.flatten(x), (1, 24)), (lambda x: C.flatten(x, 2), (6, 4)), (lambda x: C.flatten(x, -1), (24, 1)),
    (lambda x: C.reshape(x, (6,), end_axis=-1), (6, 4)), (lambda x: C.reshape(x, (1,), 1, 1), (2, 1, 3, 4)),
    (lambda x: C.reshape(x, (12,), -2), (2, 12)),
    (lambda x: C.splice(x, x, axis=C.Axis.new_leading_axis()), (2, 2, 3, 4)),
    (lambda x: C.gather(C.parameter((5, 7)), x), (2, 3, 4, 7)), (lambda x: C.one_hot(x, 9, axis=1), (2, 9, 3, 4)),
    (lambda x: C.top_k(x, 2, axis=1)[1], (2, 2, 4)), (lambda x: C.transpose(x, (-1, 0, 1)), (4, 2, 3)),
    (lambda x: x[[0, 1]], (2, 3, 4)), (lambda x: x[..., 1], (2, 3, 1)),
], ids=range(17))
def test_shapes_are_those_of_cntk(make, shape):
    assert make(C.input_variable((2, 3, 4))).shape == shape


@pytest.mark.parametrize(("make", "message"), [
    (lambda x: C.reshape(x, (7,)), "another number of elements"),
    (lambda x: C.reshape(x, (-1, -1)), "more than one dimension"),
    (lambda x: C.reshape(x, (6,), 1, 0), "begin after their end"),
    (lambda x: C.reshape(x, (6,), 0, 5), "out of bounds"),
    (lambda x: C.slice(x, 1, 2, 1), "empty or outside"),
    (lambda x: C.slice(x, 1, 0, 5), "empty or outside"),
    (lambda x: C.slice(x, 3, 0, 1), "out of bounds"),
    (lambda x: C.slice(x, [0, 1], [0, 1], [1, 3], 1), "the same number of each"),
    (lambda x: C.splice(x, C.input_variable((2, 2, 4))), "differ in another axis"),
    (lambda x: C.splice(x, x, axis=3), "out of bounds"),
    (lambda x: C.squeeze(x, 1), "cannot be dropped"),
    (lambda x: C.swapaxes(x, 0, 3), "out of bounds"),
    (lambda x: C.transpose(x, (0, 0, 1)), "duplicate item"),
    (lambda x: C.expand_dims(x, 3), "out of bounds"),
    (lambda x: C.pad(x, [(1, 2)]), "widths for 1 axes"),
    (lambda x: C.pad(x, [(0, 0), (3, 2), (0, 1)], C.REFLECT_PAD), "wider than the operand"),
    (lambda x: C.top_k(x, 9), "fewer than 9"),
    (lambda x: C.one_hot(x, 3, axis=4), "out of bounds"),
    (lambda x: C.eye_like(x), "exactly two axes"),
    (lambda x: C.crop_manual(x, C.input_variable((1, 3, 3)), 2, 1), "more than there are"),
    (lambda x: C.depth_to_space(x, 2), "divisible by 2 x 2"),
    (lambda x: C.space_to_depth(x, 2), "divisible by 2"),
    (lambda x: C.image_scaler(x, 1, [1]), "1 biases"),
    (lambda x: C.assign(C.parameter((2, 3, 4)), x), "dynamic axes"),
    (lambda x: C.assign(C.parameter(2), C.parameter(3)), "shapes of the operands differ"),
    (lambda x: C.to_batch(x), "dynamic axes already"),
    (lambda x: C.unpack_batch(C.sequence.input_variable(2)), "sequences"),
    (lambda x: C.mean_variance_normalization(x, -1), "non-negative"),
], ids=range(28))
def test_mistakes_are_explained(make, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        make(C.input_variable((2, 3, 4)))


def test_two_dimensional_sparse_results_are_sparse_matrices():
    x, steps = C.input_variable(()), C.sequence.input_variable(())
    rows = C.one_hot(x, 3, sparse_output=True).eval({x: [2, 0]})
    assert issparse(rows) and rows.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    sequences = C.one_hot(steps, 3, sparse_output=True).eval({steps: [[2, 0], [1]]})
    assert [s.toarray().tolist() for s in sequences] == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0]]]
    for shape in ((2, 3), (3, 2)):
        matrix = C.eye_like(np.zeros(shape, np.float32)).eval()
        assert issparse(matrix) and matrix.toarray().tolist() == np.eye(*shape).tolist()
    y = C.input_variable(3)
    assert C.eye_like(y).eval({y: np.zeros((4, 3))}).toarray().tolist() == np.eye(4, 3).tolist()


@pytest.mark.parametrize(("shape", "new"), [
    ((4, 4, 2), (FREE, -1)), ((4,), (FREE,)), ((FREE, 8), (FREE, -1)), ((FREE, 8), (-1, FREE)),
    ((FREE, 8), (FREE, FREE)),
])
def test_a_reshape_has_no_more_free_dimensions_than_its_operand(shape, new):
    with pytest.raises(ValueError, match="another number of elements"):
        C.reshape(C.input_variable(shape), new)


@pytest.mark.parametrize("multiply", [
    lambda x: C.times(x, C.parameter((-1, -1))), lambda x: C.times(x, C.parameter((3, 2, -1)), output_rank=2),
])
def test_sizes_of_weights_that_no_operand_tells_are_given(multiply):
    with pytest.raises(ValueError, match="no operand tells the sizes of the weights' last axes"):
        multiply(C.input_variable(3))


def test_squeeze_of_all_axes_leaves_a_free_one_whatever_its_size():
    x = C.input_variable((1, C.FreeDimension, 1))
    f = C.squeeze(x)
    assert f.shape == (C.FreeDimension,)
    assert [f.eval({x: np.ones((2, 1, n, 1), np.float32)}).shape for n in (1, 3)] == [(2, 1), (2, 3)]
