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


class TestBatchAxis:
    def test_an_unpacked_batch_axis_is_a_static_axis_of_the_batch_size(self):
        x = C.input_variable(3)
        weights = C.softmax(C.unpack_batch(x), axis=0)
        assert weights.shape == (FREE, 3) and weights.dynamic_axes == ()
        for n in (3, 5, 6, 7):  # sizes that are padded elsewhere
            assert weights.eval({x: np.zeros((n, 3))}).tolist() == [[np.float32(1 / n)] * 3] * n

    def test_a_static_axis_becomes_the_batch_axis(self):
        x, weights = C.input_variable(2), C.parameter(init=np.arange(6, dtype=np.float32).reshape(3, 2))
        data = np.ones((3, 2), np.float32)
        assert (x * C.to_batch(weights)).eval({x: data}).tolist() == weights.value.tolist()
        assert C.to_batch(weights).eval().shape == (3, 2)

    def test_round_trip_with_another_number_of_samples(self):
        x = C.input_variable((2, 3))
        rows = C.to_batch(C.reshape(C.unpack_batch(x), (-1, 3)))
        data = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        assert rows.eval({x: data}).tolist() == data.reshape(8, 3).tolist()


@pytest.mark.parametrize("sparse", [False, True])
def test_one_hot_of_an_invalid_class_is_zero(sparse):
    """Numbers: CNTK 2.7."""
    x = C.input_variable(6)
    rows = C.times(C.one_hot(x, 3, sparse_output=sparse), [[1], [2], [3]])
    assert rows.eval({x: [[-0.2, -1, 0.7, 1.9, 2.99, 3]]}).ravel().tolist() == [0, 0, 1, 2, 3, 0]


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


class TestAssign:
    def test_with_a_saved_state_it_takes_effect_after_the_backward_pass(self):
        state, value = C.parameter(2, init=0), C.parameter(2, init=3)
        assignment = C.assign(state, value)
        kept, _ = assignment.forward({}, [assignment.output], {assignment.output})
        assert state.value.tolist() == [0, 0]
        gradient = assignment.backward(kept, {assignment.output: np.ones(2, np.float32)}, {state})
        assert state.value.tolist() == [3, 3] and gradient[state].tolist() == [0, 0]

    def test_it_takes_effect_after_the_forward_pass(self):
        state = C.constant(np.array([1, 2], np.float32))
        before_and_after = C.combine([C.assign(state, state + 1), state * 1])
        values = list(before_and_after.eval().values())
        assert [v.tolist() for v in values] == [[2, 3], [1, 2]] and state.value.tolist() == [2, 3]

    def test_a_parameter_is_assigned(self):
        parameter = C.parameter(2, init=0)
        C.assign(parameter, [3, 4]).eval()
        assert parameter.value.tolist() == [3, 4]


def test_casts_convert_the_element_type():
    x = C.input_variable(2, needs_gradient=True)
    cast = C.cast(x, np.float64)
    assert cast.dtype == np.float64 and cast.eval({x: [[1, 2]]}).dtype == np.float64
    assert C.reduce_sum(cast).grad({x: [[1, 2]]}).tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="not supported"):
        C.cast(x, np.int32)


def test_a_sparse_one_hot_picks_rows_and_ignores_invalid_classes():
    x, W = C.input_variable(()), C.parameter(init=np.arange(8, dtype=np.float32).reshape(4, 2))
    rows = C.times(C.one_hot(x, 4, sparse_output=True), W)
    assert rows.eval({x: np.array([2, 7, -1, 0], np.float32)}).tolist() == [[4, 5], [0, 0], [0, 0], [0, 1]]


def test_a_sparse_input_keeps_its_elements_in_another_shape():
    x = C.input_variable(6, is_sparse=True)
    data = np.eye(6, dtype=np.float32)[[4, 1]]
    assert C.reshape(x, (2, 3)).eval({x: data}).tolist() == data.reshape(2, 2, 3).tolist()


IMAGE = np.arange(144, dtype=np.float32).reshape(1, 1, 12, 12)


def corner(size):
    """A kernel that takes the first pixel of its window."""
    kernel = np.zeros((1, 1, size, size), np.float32)
    kernel[0, 0, 0, 0] = 1
    return kernel


def convolved(x, size, stride=1, padded=False):
    return C.convolution(corner(size), x, strides=(1, stride, stride), auto_padding=[False, padded, padded])


def pooled(x, size, stride):
    return C.pooling(x, C.AVG_POOLING, (size, size), (stride, stride))


def spread(x, size, stride):
    return C.convolution_transpose(corner(size), x, strides=(1, stride, stride), auto_padding=[False])


@pytest.mark.parametrize(("image", "referent", "first"), [
    (lambda x: x, lambda x: convolved(x, 3), [13, 14, 25]),
    (lambda x: x, lambda x: convolved(x, 3, padded=True), [0, 1, 12]),
    (lambda x: x, lambda x: convolved(x, 4), [13, 14, 25]),
    (lambda x: x, lambda x: convolved(convolved(x, 3), 3), [26, 27, 38]),
    (lambda x: convolved(x, 3), lambda x: convolved(x, 5), [13, 14, 25]),
    (lambda x: spread(pooled(x, 2, 2), 4, 2), lambda x: convolved(x, 3), [32.5, 0, 0]),
    (lambda x: spread(pooled(x, 3, 2), 3, 2), lambda x: convolved(x, 5), [39, 0, 0]),
    (lambda x: pooled(x, 2, 2), lambda x: pooled(convolved(x, 5), 2, 2), [32.5, 34.5, 56.5]),
    (lambda x: C.relu(x) + 1, lambda x: convolved(x, 3), [14, 15, 26]),
], ids=range(9))
def test_crop_aligns_the_pixels(image, referent, first):
    x = C.input_variable((1, 12, 12))
    cropped = C.crop_automatic(image(x), referent(x)).eval({x: IMAGE})
    assert [cropped[0, 0, 0, 0], cropped[0, 0, 0, 1], cropped[0, 0, 1, 0]] == first


def test_crop_with_given_ancestors():
    x, y = C.input_variable((1, 12, 12)), C.input_variable((1, 12, 12))
    cropped = C.crop_automatic_with_ancestors(x, convolved(y, 3), x, y)
    assert cropped.eval({x: IMAGE, y: IMAGE})[0, 0, 0, 0] == 13


@pytest.mark.parametrize(("referent", "message"), [
    (lambda x: pooled(x, 2, 2), "not of the same size"), (lambda x: C.input_variable((1, 4, 4)), "no common ancestor"),
], ids=range(2))
def test_crop_without_alignment_is_an_error(referent, message):
    x = C.input_variable((1, 12, 12))
    cropped = C.crop_automatic(x, referent(x))
    with pytest.raises(ValueError, match=message):
        cropped.eval({v: np.zeros((1, *v.shape)) for v in cropped.arguments})
