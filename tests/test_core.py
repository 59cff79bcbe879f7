"""Values and array views (shapes and answers recorded from CNTK 2.7)."""
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.compat import cntk_py
from cntkjax.engine.data.feeds import to_ragged
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
    with pytest.raises(ValueError, match="12 elements, not 15"):
        view.as_shape((5, 3))
    for shape in (3, 2, 3), (2, 2, 4):
        with pytest.raises(ValueError, match="does not hold"):
            C.NDArrayView.from_csr(CSR, shape=shape)
    x = C.input_variable((2, 3), is_sparse=True)
    assert C.times(x, np.eye(3, dtype=np.float32)).eval({x: view}).tolist() == view.asarray().tolist()


def test_a_list_of_numbers_is_no_list_of_sequences():
    with pytest.raises(ValueError, match=r"arrays \[steps, \*shape\], not the number 1: pass np\.array"):
        C.Value([1, 2, 3])


def test_a_list_makes_sequences():
    batch, sequence = C.input_variable(3), C.sequence.input_variable(3)
    for x in batch, sequence:
        value = C.asvalue(x, [ROW[0], ROW[1]])
        assert value.shape == (2, 1, 3)
        assert [s.shape for s in value.as_sequences(x)] == [(1, 3), (1, 3)]
        assert np.concatenate((x * 1).eval({x: value})).reshape(2, 3).tolist() == ROW.tolist()
    for x in batch, sequence:  # an array has no axes; the variable determines them
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
    assert C.Value.one_hot([True, False], 3).asarray().toarray().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_sparse_samples_without_steps_are_one_sequence_for_as_sequences():
    sparse = C.input_variable(3, is_sparse=True)
    samples = C.Value.one_hot([0, 2, 1], 3)
    numbers = [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    result = C.combine(sparse).eval({sparse: samples}, as_numpy=False)
    for value in samples, C.asvalue(sparse, samples.asarray()), result:
        [sequence] = value.as_sequences(sparse)
        assert sequence.toarray().tolist() == np.asarray(value).tolist() == np.asarray(value.data).tolist() == numbers
    [unpacked] = samples.unpack_variable_value(sparse, C.cpu())
    assert unpacked.shape == (3, 3)
    assert [s.shape[0] for s in C.Value.one_hot([[0, 2], [1]], 3).as_sequences(sparse)] == [2, 1]


def test_a_value_without_dynamic_axes_has_its_rows_as_sequences():
    value = C.plus(C.constant(ROW), 1).eval(as_numpy=False)
    assert [s.tolist() for s in value.as_sequences()] == (ROW + 1).tolist()
    assert [s.asarray().shape for s in value.unpack_variable_value(C.constant(ROW), C.cpu())] == [(1, 2, 3)]
    assert C.plus(C.constant(1), 1).eval(as_numpy=False).as_sequences() == [2]


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


DOUBLE, SINGLE = np.ones(2), np.ones(2, np.float32)


@pytest.mark.parametrize("make", [lambda v, **o: C.constant(v, **o), lambda v, **o: C.parameter(init=v, **o)])
@pytest.mark.parametrize(("value", "options", "expected"), [
    (DOUBLE, {}, np.float64), (DOUBLE, {"dtype": np.float32}, np.float32), (SINGLE, {"dtype": np.float64}, np.float64),
    (np.ones(2, np.float16), {}, np.float16), (np.ones(2, int), {}, np.float32), ([1.0, 2.0], {}, np.float32),
    ([1.0, 2.0], {"dtype": np.float64}, np.float64), (np.ones(2, int), {"dtype": np.float64}, np.float64),
])
def test_a_requested_type_takes_precedence_over_that_of_the_array(make, value, options, expected):
    assert make(value, **options).dtype is expected
    with C.default_options(dtype=np.float64 if expected is np.float32 else np.float32):
        if not options and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert make(value).dtype is expected


@pytest.mark.parametrize("value", ["a", [[1, 2], [3]], [object()], {"a": 1}])
@pytest.mark.parametrize("make", [C.constant, lambda v: C.parameter(init=v), lambda v: C.parameter((2,), init=v)])
def test_non_numeric_data_are_rejected(make, value):
    with pytest.raises(ValueError, match="is not a number or a regular array of numbers"):
        make(value)


def test_the_element_type_is_inferred():
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


def test_values_go_from_function_to_function():
    x, y = C.sequence.input_variable(2), C.sequence.input_variable(2)
    first, second = x * 2, y + 1
    value = first.eval({x: [np.ones((3, 2)), np.zeros((1, 2))]}, as_numpy=False)
    assert isinstance(to_ragged(y, value).data, np.ndarray) and value.device == C.cpu() and value.dtype is np.float32
    assert value.shape == (2, 3, 2) and value.mask.tolist() == [[2, 1, 1], [2, 0, 0]]
    assert [s.tolist() for s in second.eval({y: value})] == [[[3, 3]] * 3, [[1, 1]]]
    b, c = C.input_variable(2), C.input_variable((2, 1))
    batch = (b * 2).eval({b: np.ones((3, 2), np.float32)}, as_numpy=False)
    assert C.squeeze(c + 1).eval({c: batch}).tolist() == [[3, 3]] * 3
    assert (b + 1).eval({b: jnp.ones((3, 2))}).tolist() == [[2, 2]] * 3


def test_static_and_sparse_results_are_fed_again():
    w, fixed = C.parameter((2,), init=3), C.input_variable(2, dynamic_axes=[])
    assert (fixed + 1).eval({fixed: (w * 2).eval(as_numpy=False)}).tolist() == [7, 7]
    i, s = C.sequence.input_variable(()), C.sequence.input_variable(4, is_sparse=True)
    hot = C.one_hot(i, 4, sparse_output=True).eval({i: [[1, 3], [2]]}, as_numpy=False)
    assert hot.is_sparse and hot.shape == (2, 2, 4)
    assert [r.tolist() for r in C.times(s, np.arange(4.0).reshape(4, 1)).eval({s: hot})] == [[[1], [3]], [[2]]]


def test_sparse_values_without_dynamic_axes_are_fed_again():
    identity = C.eye_like(C.parameter((3, 2)), True)
    value = identity.eval(as_numpy=False)
    assert value.is_sparse and value.shape == (3, 2) and value.data.is_sparse
    rows = C.input_variable((3, 2), dynamic_axes=[])
    expected = [[2, 0], [0, 2], [0, 0]]
    assert (rows * 2).eval({rows: value}).tolist() == expected
    assert (rows * 2).eval({rows: identity.eval(as_numpy=False).deep_clone()}).tolist() == expected


def test_a_value_is_valid_until_its_function_computes_again():
    x = C.input_variable(2)
    f = x * 2
    value = f.eval({x: [[1, 2]]}, as_numpy=False)
    clone = value.deep_clone()
    (f + 1).eval({x: [[5, 5]]})
    assert value.is_valid
    assert f.eval({x: value}).tolist() == [[4, 8]]  # it becomes invalid only after it was fed
    assert not value.is_valid and repr(value) == "Value(###)"
    assert clone.is_valid and clone.asarray().tolist() == [[2, 4]]
    for use in (lambda: value.asarray(), lambda: value.shape, lambda: f.eval({x: value}), lambda: np.asarray(value)):
        with pytest.raises(RuntimeError, match="this Value is no longer valid.*(\n.*)*deep_clone"):
            use()


def test_other_libraries_take_values_and_views():
    import jax

    x = C.sequence.input_variable(1)
    value = (x * 2).eval({x: [[[1.0], [2.0]], [[3.0]]]}, as_numpy=False)
    for data in value, value.data, C.asvalue(x, [np.array([[2.0], [4.0]]), np.array([[6.0]])]):
        assert np.asarray(data).tolist() == [[[2], [4]], [[6], [0]]]
        assert jax.numpy.asarray(data).tolist() == [[[2], [4]], [[6], [0]]]
        assert jax.numpy.from_dlpack(data).tolist() == [[[2], [4]], [[6], [0]]]
    assert np.asarray(C.NDArrayView.from_dense(ROW), np.float64).dtype == np.float64


def test_views_are_copied_and_created_from_known_types_only():
    view, other = C.NDArrayView.from_dense(ROW), C.NDArrayView.from_dense(ROW + 1)
    alias = view.alias(readOnly=True)
    view.copy_from(other)
    assert alias.to_ndarray().tolist() == (ROW + 1).tolist()
    with pytest.raises(RuntimeError, match="read-only"):
        alias.copy_from(other)
    with pytest.raises(ValueError, match="does not have the shape"):
        view.copy_from(C.NDArrayView((3, 2), np.float32))
    with pytest.raises(RuntimeError, match="not int64"):
        C.NDArrayView.from_dense(np.ones(2, np.int64))
    with pytest.raises(TypeError, match="not of list"):
        C.NDArrayView.from_dense([1.0])


def test_views_are_read_only_where_they_show_memory_of_the_caller():
    """A copy is not, whatever is asked for, as CNTK prints."""
    makers = (C.NDArrayView.from_dense, ROW), (C.NDArrayView.from_data, ROW), (C.NDArrayView.from_csr, CSR)
    for make, data in makers:
        assert make(data, read_only=True, borrow=True).is_read_only
        assert not make(data, read_only=True).is_read_only


def test_masks_say_how_long_sequences_are():
    mask = C.cntk_py.NDMask((2, 3), C.cpu())
    mask.mark_sequence_begin((0, 0))
    mask.invalidate_section((1, 2), (1, 1))
    value = C.Value(C.NDArrayView.from_dense(np.arange(6, dtype=np.float32).reshape(2, 3, 1)), mask)
    assert value.mask.tolist() == [[2, 1, 1], [1, 1, 0]] and value.masked_count() == mask.masked_count() == 1
    assert [s.ravel().tolist() for s in value.as_sequences()] == [[0, 1, 2], [3, 4]]
    assert mask.deep_clone().to_ndarray().tolist() == mask.asarray().tolist()
    with pytest.raises(ValueError, match="a section at"):
        mask.invalidate_section((1, 2), (1, 2))
    mask.clear()
    mask.invalidate_section((0, 0), (1, 1))
    with pytest.raises(ValueError, match="does not give the lengths of sequences"):
        C.Value(np.zeros((2, 3, 1), np.float32), mask)


def test_array_views_can_be_filled_with_one_value():
    view = C.NDArrayView.from_dense(ROW)
    view.slice_view((1, 0), (1, 3), read_only=False).set_value(2.5)
    assert view.asarray().tolist() == [[0, 1, 2], [2.5] * 3]
    for dtype, value in ((np.float64, 0.1), (np.float16, 0.5), (np.int8, 3)):
        other = C.NDArrayView.from_dense(np.ones(2, dtype))
        other.set_value(value)
        assert other.asarray().tolist() == [value] * 2 and other.dtype is dtype
    with pytest.raises(RuntimeError, match="read-only"):
        view.slice_view((1, 0), (1, 3)).set_value(1.0)
    with pytest.raises(RuntimeError, match="sparse"):
        C.NDArrayView.from_csr(CSR).set_value(1.0)
    with pytest.raises(TypeError, match="value = array.* a number"):
        view.set_value(ROW)


def test_array_views_report_their_type_and_format_as_numbers():
    views = C.NDArrayView.from_dense(ROW), C.NDArrayView.from_csr(CSR), C.NDArrayView.from_dense(ROW.astype(np.int16))
    assert [(v.get_data_type(), v.get_storage_format()) for v in views] == [(1, 0), (1, 1), (6, 0)]
    assert views[0].as_string() == "NDArrayView([2 x 3], CPU)"


def test_array_views_of_random_numbers():
    drawn = C.NDArrayView.random_uniform_float((200, 300), -1, 1, 7, C.cpu()).asarray()
    assert drawn.dtype == np.float32 and -1 <= drawn.min() < -0.999 and 0.999 < drawn.max() <= 1
    again = C.NDArrayView.random_uniform_float((200, 300), -1, 1, 7).asarray()
    assert (again == drawn).all()
    assert C.NDArrayView.random_uniform_double((2,), 0, 1).dtype is np.float64


def test_array_views_move_between_devices():
    view = C.NDArrayView.from_dense(ROW)
    view.change_device(C.cpu())
    assert view.device == C.cpu() and view.asarray().tolist() == ROW.tolist()
    with pytest.raises(TypeError, match="device = 3 .* DeviceDescriptor"):
        view.change_device(3)


def test_masks_are_copied():
    mask, other = (cntk_py.NDMask((2, 3)) for _ in range(2))
    mask.invalidate_section((0, 1), (1, 2))
    other.copy_from(mask)
    assert other.asarray().tolist() == [[1, 0, 0], [1, 1, 1]]
    with pytest.raises(ValueError, match="does not have the shape"):
        other.copy_from(cntk_py.NDMask((3, 2)))


@pytest.fixture
def ragged():
    x = C.sequence.input_variable(2)
    return x, C.Value.create(x, [np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6]], np.float32)])


def test_values_report_their_type_and_format_as_numbers(ragged):
    _, value = ragged
    assert (value.get_data_type(), value.get_storage_format(), value.one_hot_skip) == (1, 0, 2**32 - 1)
    assert value.as_string() == "Value([2 x 2 x 2], CPU)"
    assert C.Value.one_hot([0], 3).get_storage_format() == 1


def test_values_are_unpacked_into_their_sequences(ragged):
    x, value = ragged
    views = value.unpack_variable_value(x, C.cpu())
    assert [view.asarray().tolist() for view in views] == [[[1, 2], [3, 4]], [[5, 6]]]
    samples = C.Value(ROW).unpack_variable_value(C.input_variable(3), C.cpu())
    assert [view.asarray().tolist() for view in samples] == [[[0, 1, 2]], [[3, 4, 5]]]
    with pytest.raises(ValueError, match="is not a value of"):
        value.unpack_variable_value(C.input_variable(2), C.cpu())


def test_values_are_copied_into_others_of_their_shape(ragged):
    x, value = ragged
    other = C.Value.create(x, [np.zeros((2, 2), np.float32), np.zeros((1, 2), np.float32)])
    other.copy_from(value)
    assert other.asarray().tolist() == value.asarray().tolist() and other.mask.tolist() == [[2, 1], [2, 0]]
    row = C.Value(np.zeros((2, 3), np.float32))
    row.copy_from(C.Value(ROW))
    y = C.input_variable(3)
    assert (2 * y).eval({y: row}).tolist() == (2 * ROW).tolist()
    with pytest.raises(ValueError, match="does not have the shape"):
        row.copy_from(C.Value(ROW.T))
    with pytest.raises(TypeError, match="takes a Value"):
        row.copy_from(C.NDArrayView.from_dense(ROW))


def test_read_only_values_are_not_written_to(ragged):
    x, value = ragged
    created = C.Value.create(x, [np.ones((2, 2), np.float32)], read_only=True)
    for read_only in (value.alias(True), value.deep_clone(True), created):
        assert read_only.is_read_only and cntk_py.Value(read_only).is_read_only()
        with pytest.raises(RuntimeError, match="read-only"):
            read_only.copy_from(value)
    assert not value.is_read_only and not value.alias().is_read_only


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_values_are_created_from_lists_of_numbers(kind, dtype):
    def make(name, *arguments):
        value = getattr(C.Value, f"create_{name}_{kind}")(*arguments)
        assert value.dtype is dtype and isinstance(value, cntk_py.Value)
        return value

    dense = make("dense", (2,), [[1, 2, 3, 4], [5, 6]], C.cpu())
    assert dense.asarray().tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    assert make("dense", (2,), [[1, 2, 3, 4], [5, 6]], [True, False], C.cpu(), True).mask.tolist() == [[2, 1], [1, 0]]
    assert make("one_hot", (3,), [[0, 1], [2]], C.cpu()).shape == (2, 2, 3)
    assert make("one_hot", 3, [[0, 1], [2]], C.cpu()).shape == (2, 2, 3)
    assert make("batch", 3, [0, 2], C.cpu(), True).is_read_only
    assert make("batch", 3, [0, 1, 2], C.cpu()).shape == (3, 1, 3)
    sequence = make("sequence", 3, [0, 2, 1], True, C.cpu())
    assert sequence.as_sequences()[0].toarray().tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert make("sequence", 3, [0, 2], False).mask.tolist() == [[1, 1]]


@pytest.mark.parametrize("make", [C.input_variable, C.sequence.input_variable])
def test_a_value_of_a_variable_with_a_free_dimension_has_the_shape_of_its_data(make):
    data = [np.ones((2, 3, 1), np.float32), np.full((1, 3, 1), 2, np.float32)]
    variable = make((C.FreeDimension, 1))
    value = C.Value.create(variable, data)
    assert value.shape == value.data.shape == (2, 2, 3, 1)
    np.testing.assert_array_equal(value.data.asarray()[1, :, 0, 0], [2, 0])
    if variable.has_sequence_axis():
        assert [s.asarray().shape for s in value.unpack_variable_value(variable, C.cpu())] == [(2, 3, 1), (1, 3, 1)]


def test_the_compiled_module_creates_values_from_array_views():
    view = C.NDArrayView.from_dense(ROW).as_shape((3, 2))
    assert cntk_py.Value_create((2,), [view], [True], C.cpu(), False, False).shape == (1, 3, 2)
    assert cntk_py.Value_create((2,), [view, view.slice_view((0, 0), (1, 2))], C.cpu(), False).shape == (2, 3, 2)


def test_a_value_of_a_sparse_matrix_is_one_sequence_where_the_variable_has_steps():
    value = C.Value(CSR)  # as in CNTK, and as a dense array
    for is_sparse in (True, False):
        s, x = (make(3, is_sparse=is_sparse) for make in (C.sequence.input_variable, C.input_variable))
        assert [v.shape for v in C.times(s, np.eye(3)).eval({s: value})] == [(2, 3)]
        np.testing.assert_array_equal(C.times(x, np.eye(3)).eval({x: value}), CSR.toarray())
