"""The forms of data that can be fed for a variable. These and the results are those of CNTK 2.7."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.data.feeds import to_ragged
from cntkjax.engine.data.ragged import Ragged
from cntkjax.graph.errors import ShapeError

ones = np.ones


def batch():
    return C.input_variable(3, name="x")


def sequence():
    return C.sequence.input_variable(3, name="s")


@pytest.mark.parametrize("declare", [batch, sequence])
@pytest.mark.parametrize("data, dtype", [
    (ones((1, 3)), "float64"), ([ones((1, 3)), ones((1, 3))], "float64"), (ones((1, 3), np.int64), "int64"),
    (ones((1, 3), bool), "bool"), (csr_matrix(ones((1, 3))), "float64"), ([csr_matrix(ones((1, 3)))], "float64"),
], ids=repr)
def test_data_of_another_type_are_converted_with_a_warning(declare, data, dtype):
    x = declare()
    text = f'data is of type "{dtype}", but your input variable (uid "{x.uid}") expects "<class \'numpy.float32\'>"'
    with pytest.warns(UserWarning, match=re.escape(text)) as warned:
        (x * 1).eval({x: data})
    assert warned[0].filename == __file__


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("data", [ones((1, 3), np.float32), [[1.0, 2, 3]], [ones((1, 3), np.float32)]], ids=repr)
def test_lists_of_numbers_have_the_type_of_the_variable(data):
    x = batch()
    (x * 1).eval({x: data})


@pytest.mark.parametrize("data, expected", [
    (ones((2, 3)), ones((2, 3))),
    (ones(3), ones((1, 3))),
    ([[1, 1, 1]], ones((1, 3))),
    ([ones(3), ones(3)], ones((2, 3))),
    ([ones((1, 3)), ones((1, 3))], ones((2, 3))),
    (ones((2, 1, 3)), ones((2, 3))),
    (np.array([True, True, True]), ones((1, 3))),
    (ones((2, 3), np.int32), ones((2, 3))),
    (ones((2, 3), np.float16), ones((2, 3))),
], ids=repr)
def test_batch_variable_takes(data, expected):
    x = batch()
    values = (x * 1).eval({x: data})
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("data, lengths", [
    ([ones((2, 3)), ones((1, 3))], [2, 1]),
    ([[[1, 1, 1]], [[1, 1, 1], [1, 1, 1]]], [1, 2]),
    ([ones(3), ones(3)], [1, 1]),
    (ones((2, 3)), [2]),
    (ones((4, 2, 3)), [2, 2, 2, 2]),
    ([csr_matrix(ones((2, 3))), csr_matrix(ones((1, 3)))], [2, 1]),
], ids=repr)
def test_sequence_variable_takes(data, lengths):
    s = sequence()
    values = (s * 1).eval({s: data})
    assert [v.shape for v in values] == [(n, 3) for n in lengths]
    assert all((v == 1).all() for v in values)


def test_arrays_without_axes_are_sequences_of_one_scalar():
    x = C.sequence.input_variable(())
    for data, lengths in ([1, 2, 3], [1, 1, 1]), ([1, [2, 3]], [1, 2]):
        values = (x + 0).eval({x: [np.array(d, np.float32) for d in data]})
        assert [len(v) for v in values] == lengths and np.concatenate(values).tolist() == [1, 2, 3]


def test_sequences_of_scalars_may_lack_the_axis_of_size_one():
    s = C.sequence.input_variable(1)
    values = (s + 1).eval({s: [[1, 2, 3], [4]]})
    np.testing.assert_array_equal(values[0], [[2], [3], [4]])
    np.testing.assert_array_equal(values[1], [[5]])


@pytest.mark.parametrize("data", [
    csr_matrix(np.eye(3, dtype=np.float32)), [csr_matrix(np.eye(3))], np.eye(3),
    csr_matrix([[0, 2.5, 0], [1, 0, 4], [0, 0, 0]]),
], ids=["csr", "list of csr", "dense", "general csr"])
def test_sparse_variable_takes(data):
    x = C.input_variable(3, is_sparse=True)
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    dense = data[0] if isinstance(data, list) else data
    dense = dense.toarray() if hasattr(dense, "toarray") else dense
    np.testing.assert_allclose(C.times(x, C.constant(weights)).eval({x: data}), dense @ weights)


def test_arguments_may_be_named_or_left_out_when_there_is_one():
    x = batch()
    f = x + 1
    for feeds in ({x: ones((1, 3))}, {"x": ones((1, 3))}, ones((1, 3)), {x: ones((1, 3)), sequence(): ones((1, 3))}):
        np.testing.assert_array_equal(f.eval(feeds), 2 * ones((1, 3)))


@pytest.mark.parametrize("variable, data, message", [
    (batch, ones((2, 4)), r"\[2 x 4\] do not match the variable Input\('x', \[#\], \[3\]\)"),
    (batch, [ones((2, 3)), ones((2, 3))], "do not match"),
    (batch, ones((0, 3)), "empty minibatch"),
    (lambda: C.input_variable((C.InferredDimension,)), [], "empty minibatch"),
    (lambda: C.input_variable((C.FreeDimension, 2)), ones((2, 0, 2)), "empty minibatch"),
    (lambda: C.sequence.input_variable((C.InferredDimension,)), [ones((2, 0))], "empty minibatch"),
    (batch, [["a", "b", "c"]], "not numbers"),
    (batch, csr_matrix(ones((2, 4))), "a column for each element"),
    (sequence, ones((2, 2, 1)), "takes sequences"),
    (sequence, [], "at least one sequence"),
    (sequence, [ones((2, 3)), ones((2, 2))], "takes sequences"),
])
def test_data_that_do_not_fit_are_an_error_that_says_why(variable, data, message):
    v = variable()
    with pytest.raises(ValueError, match=message):
        (v + 1).eval({v: data})


def test_no_samples_are_an_error_of_cntks_type():
    x = batch()
    with pytest.raises(RuntimeError, match="empty minibatch"):
        (x + 1).eval({x: ones((0, 3))})


@pytest.mark.parametrize("variable, data, fix", [
    (batch, ones((2, 4)), "feed an array of shape [samples x 3], or declare the variable with the shape of one sample"),
    (batch, csr_matrix(ones((2, 4))), "feed matrices with 3 columns, or declare the variable with shape [4]"),
    (batch, C.parameter(3) + 1, "evaluate it first"),
    (batch, C.Value.from_ragged(Ragged(ones((2, 4)), None), (4,)), "declare the variable with shape [4]"),
    (sequence, ones((2, 2, 1)), "feed a list of arrays of shape [steps x 3], one for each sequence"),
    (sequence, [], "feed a list with an array [steps, *shape] for each sequence"),
    (sequence, ([ones((2, 3))], [True, False]), "feed (data, flags) with one flag for each sequence"),
    (lambda: C.input_variable(3, is_sparse=True), (csr_matrix(ones((2, 3))), [True]), "feed the data alone"),
    (sequence, (C.Value(ones((1, 2, 3), np.float32)), [True]), "feed the value alone"),
])
def test_errors_of_feeds_say_how_to_fix_them(variable, data, fix):
    v = variable()
    with pytest.raises((ValueError, TypeError), match=f"Fix: {re.escape(fix)}"):
        (v + 1).eval({v: data})


def test_missing_data_are_an_error_that_names_the_argument():
    x, y = batch(), C.input_variable(3, name="labels")
    with pytest.raises(ValueError, match="no data for Input\\('labels'"):
        (x + y).eval({x: ones((1, 3))})
    with pytest.raises(ValueError, match="expects 1 arguments"):
        (x + 1).eval()


def test_arguments_of_one_sequence_axis_need_the_same_lengths():
    a, b = sequence(), C.sequence.input_variable(3, name="other")
    with pytest.raises(ValueError, match="other lengths than those of another argument"):
        (a + b).eval({a: [ones((2, 3))], b: [ones((1, 3))]})
    with pytest.raises(ValueError, match="different numbers of sequences or samples"):
        (a + b).eval({a: [ones((2, 3))], b: [ones((2, 3)), ones((1, 3))]})


def test_sparse_matrices_may_have_the_last_axis_of_the_samples_as_columns():
    matrices = [csr_matrix(np.eye(3)[[0, 1]]), csr_matrix(np.eye(3)[[2, 0]])]
    x = C.input_variable((2, 3), is_sparse=True)
    ragged = to_ragged(x, matrices)
    np.testing.assert_array_equal(ragged.data.to_dense().reshape(2, 2, 3), np.eye(3)[[[0, 1], [2, 0]]])
    s = C.sequence.input_variable((2, 3), is_sparse=True)
    np.testing.assert_array_equal(to_ragged(s, matrices).lengths, [1, 1])


def test_a_free_dimension_of_sparse_samples_comes_from_their_width():
    x = C.input_variable((C.FreeDimension, 3), is_sparse=True)
    data = csr_matrix(np.eye(6, dtype=np.float32)[[4, 0]])
    np.testing.assert_array_equal(C.times(x, np.eye(3)).eval({x: data}), np.eye(6)[[4, 0]].reshape(2, 2, 3))


class TestOneHotOfSeveralAxes:
    """Shapes and numbers of CNTK 2.7 for an input [4 x 3] whose samples are four rows each."""

    ROWS = csr_matrix(np.eye(3, dtype=np.float32)[[0, 1, 2, 1]])
    FIRST, SECOND = [[[0, 1], [2, 3]], [[4, 5], [2, 3]]], [[[4, 5], [4, 5]], [[4, 5], [4, 5]]]

    @pytest.mark.parametrize(("data", "samples"), [
        (C.Value.one_hot([0, 1, 2, 1], 3), [FIRST]),
        (C.Value.one_hot([[0, 1, 2, 1]], 3), [FIRST]),
        (C.Value.one_hot([[0, 1, 2, 1], [2, 2, 2, 2]], 3), [FIRST, SECOND]),
        (C.Value.one_hot([[0, 1, 2, 1], [2, 2, 2, 2]], (4, 3)), [FIRST, SECOND]),
        (ROWS, [FIRST]), ([ROWS], [FIRST]), ([ROWS, csr_matrix(np.eye(3, dtype=np.float32)[[2] * 4])], [FIRST, SECOND]),
    ])
    @pytest.mark.parametrize("variable", [C.input_variable, C.sequence.input_variable])
    def test_values(self, variable, data, samples):
        x = variable((4, 3), is_sparse=True)
        weights = C.constant(np.arange(6, dtype=np.float32).reshape(3, 2))
        result = C.times(C.reshape(x, (2, 2, 3)), weights).eval({x: data})
        np.testing.assert_array_equal(np.reshape(result, (-1, 2, 2, 2)), samples)

    def test_nested_samples_are_the_steps_of_one_sequence(self):
        s = C.sequence.input_variable((4, 3), is_sparse=True)
        value = C.Value.one_hot([[0, 1, 2, 1], [2, 2, 2, 2]], 3)
        assert [y.shape for y in C.times(s, np.eye(3, dtype=np.float32)).eval({s: value})] == [(2, 4, 3)]

    def test_other_lengths_are_rejected(self):
        x = C.input_variable((4, 3), is_sparse=True)
        for indices in ([0, 1, 2], [[0, 1, 2, 1], [0]]):
            with pytest.raises(ShapeError):
                to_ragged(x, C.Value.one_hot(indices, 3))

    def test_a_flat_list_for_a_sequence_is_one_sequence(self):
        s = C.sequence.input_variable(3, is_sparse=True)
        result = C.times(s, np.eye(3, dtype=np.float32)).eval({s: C.Value.one_hot([0, 1, 2, 1], 3)})
        assert [y.shape for y in result] == [(4, 3)]


class TestStartFlags:
    """What CNTK takes flags with."""

    steps = [np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)]
    s, x = C.sequence.input_variable(2), C.input_variable(2)

    def test_none_are_as_if_not_given(self):
        f, (samples,) = self.x + 1, self.steps[:1]
        for fed in ({self.x: (samples, None)}, ({self.x: samples}, None)):
            assert f.eval(fed).shape == (2, 2)
        assert len((self.s + 1).eval({self.s: (self.steps, None)})) == 2

    def test_a_variable_without_steps_and_a_value_are_refused(self):
        value = C.Value.create(self.s, self.steps)
        for v, data, reason in ((self.x, self.steps[0], "has no sequence axis"), (self.s, value, "fed with a value")):
            for fed in ({v: (data, [True, True])}, ({v: data}, [True, True])):
                with pytest.raises(ValueError, match=reason):
                    (v + 1).eval(fed)

    def test_minibatches_of_readers_have_their_own(self):
        kinds = C.layers.typing
        source = C.io.MinibatchSourceFromData({"s": (self.steps, kinds.Sequence[kinds.Tensor[2]])})
        data = source.next_minibatch(100)[source.streams.s]
        for fed in ({self.s: (data, [True, False])}, ({self.s: data}, [True])):
            assert len((self.s + 1).eval(fed)) == 2
