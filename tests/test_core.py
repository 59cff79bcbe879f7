"""Values and array views (shapes and answers recorded from CNTK 2.7)."""
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.internal import _value_as_sequence_or_array, sanitize_value

ROW = np.arange(6, dtype=np.float32).reshape(2, 3)
CSR = csr_matrix(np.array([[1, 0, 2], [2, 3, 0]], np.float32))


@pytest.mark.parametrize(("offset", "extent", "expected"), [
    ((1, 0), (3,), [3, 4, 5]), ((1, 0), (1, 3), [[3, 4, 5]]), ((0, 1), (2,), [1, 2]), ((1, 1), (), 4),
    ((0, 0), (2, 3), ROW.tolist()),
])
def test_slices_share_memory(offset, extent, expected):
    array = ROW.copy()
    part = C.NDArrayView.from_dense(array, borrow=True).slice_view(offset, extent)
    assert part.asarray().tolist() == expected
    assert part.shape == extent
    array[:] = 7
    assert (part.asarray() == 7).all()


@pytest.mark.parametrize(("offset", "extent"), [((1,), (1,)), ((0, 0), (3, 3)), ((0, 1), (2, 2)), ((0, 0), (1, 1, 1))])
def test_slices_that_are_none(offset, extent):
    with pytest.raises(ValueError, match="slice at"):
        C.NDArrayView.from_dense(ROW).slice_view(offset, extent)


def test_sparse_views():
    view = C.NDArrayView.from_csr(csr_matrix(np.arange(12, dtype=np.float32).reshape(4, 3)), shape=(2, 2, 3))
    assert view.shape == (2, 2, 3)
    assert view.asarray().tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    assert view.slice_view((1, 0, 0), (1, 2, 3)).asarray().tolist() == [[[6, 7, 8], [9, 10, 11]]]
    assert view.as_shape((4, 3)).asarray().toarray().tolist() == np.arange(12).reshape(4, 3).tolist()
    with pytest.raises(ValueError, match="another size"):
        view.as_shape((5, 3))
    for shape in (3, 2, 3), (2, 2, 4):
        with pytest.raises(ValueError, match="does not hold"):
            C.NDArrayView.from_csr(CSR, shape=shape)
    x = C.input_variable((2, 3), is_sparse=True)
    assert C.times(x, np.eye(3, dtype=np.float32)).eval({x: view}).tolist() == view.asarray().tolist()


def test_a_list_makes_sequences():
    batch, sequence = C.input_variable(3), C.sequence.input_variable(3)
    for x in batch, sequence:
        value = C.asvalue(x, [ROW[0], ROW[1]])
        assert value.shape == (2, 1, 3)
        assert [s.shape for s in value.as_sequences(x)] == [(1, 3), (1, 3)]
        assert np.concatenate((x * 1).eval({x: value})).reshape(2, 3).tolist() == ROW.tolist()
    for x in batch, sequence:  # an array is what it is; the variable says which axes it has
        value = C.asvalue(x, ROW)
        assert value.shape == (2, 3)
        assert [s.shape for s in value.as_sequences(x)] == [(3,), (3,)]
        assert np.reshape((x * 1).eval({x: value}), (2, 3)).tolist() == ROW.tolist()
    value = C.asvalue(sequence, [ROW, ROW[:1]])
    assert [s.shape for s in _value_as_sequence_or_array(value, sequence)] == [(2, 3), (1, 3)]
    assert _value_as_sequence_or_array(C.asvalue(batch, ROW), batch).shape == (2, 3)


def test_sparse_sequences():
    x = C.sequence.input_variable(3, is_sparse=True)
    value = C.asvalue(x, [CSR[:1], CSR])
    assert value.is_sparse and value.shape == value.data.shape == (2, 2, 3)
    padded = [[[1, 0, 2], [0, 0, 0]], [[1, 0, 2], [2, 3, 0]]]
    assert value.data.is_sparse
    assert value.data.asarray().tolist() == value.asarray().tolist() == padded
    assert (C.asvalue(C.input_variable(3, is_sparse=True), CSR).asarray() != CSR).nnz == 0


def test_one_hot():
    skipped = C.Value.one_hot([[0, C.Value.ONE_HOT_SKIP, 1], [2]], 3)
    assert skipped.asarray().tolist() == [[[1, 0, 0], [0, 0, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [0, 0, 0]]]
    for wrong in [[3]], [[-1]], [[0.5]]:
        with pytest.raises(ValueError, match="one_hot"):
            C.Value.one_hot(wrong, 3)


def test_parameters_and_constants_take_array_views():
    p, c = C.parameter((2, 3)), C.constant(1, shape=(2,))
    p.set_value(sanitize_value((2, 3), 4, np.float32, None))
    p.value = C.NDArrayView.from_dense(p.value[None] + ROW).slice_view((0, 0, 0), (2, 3))
    c.set_value(np.array([5, 6]))
    assert p.value.tolist() == (ROW + 4).tolist()
    assert c.value.tolist() == [5, 6]


def test_a_constant_of_inferred_shape():
    c = C.constant(2, shape=(C.InferredDimension, 4))
    with pytest.raises(ValueError, match="inferred when it is first used"):
        _ = c.value
    assert (C.input_variable((3, 4)) + c).shape == (3, 4)
    assert c.value.tolist() == [[2] * 4] * 3


def test_an_element_type_that_is_inferred():
    p = C.parameter((C.InferredDimension, 2), init=C.glorot_uniform(), dtype=C.cntk_py.DataType_Unknown)
    assert p.dtype is None and p.get_data_type() == C.cntk_py.DataType_Unknown
    known = C.parameter(2, dtype=C.cntk_py.DataType_Unknown)
    with pytest.raises(ValueError, match="element type is inferred"):
        _ = known.value
    assert C.times(C.input_variable(3, np.float64), p).dtype is np.float64
    assert p.value.dtype == np.float64 and p.value.shape == (3, 2)


def test_one_hot_samples_of_several_axes_take_several_indices():
    value = C.Value.one_hot([[1, 3, 0, 2], [2, 0]], (2, 4))
    first, second = value.ragged.sequences()
    np.testing.assert_array_equal(first.to_dense().reshape(2, 2, 4), np.eye(4)[[[1, 3], [0, 2]]])
    np.testing.assert_array_equal(second.to_dense().reshape(1, 2, 4), np.eye(4)[[[2, 0]]])
    with pytest.raises(ValueError, match="take 2 indices each"):
        C.Value.one_hot([[1, 3, 0]], (2, 4))
