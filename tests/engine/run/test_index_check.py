"""Indices that are fed or constants and not those of an axis are errors before a program runs."""

import numpy as np
import pytest
import scipy.sparse

import cntkjax as C
from cntkjax.graph.errors import IndexRangeError
from cntkjax.interop import to_jax

S = C.sequence
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
BAD = pytest.mark.parametrize("bad", [3, -1, np.nan, np.inf, 1e9])


def table(dtype=np.float32):
    return C.parameter(init=np.arange(6, dtype=dtype).reshape(3, 2), name="table")


@TYPES
@BAD
class TestFed:
    def test_is_an_error_that_names_the_operation_the_index_its_place_and_the_size(self, bad, dtype):
        i = C.input_variable(2, dtype=dtype, name="ids")
        f = C.gather(table(dtype), i)
        message = r"Gather: the index \S+, element \[1\] of sample 2 of.* 3 elements"
        with pytest.raises(IndexRangeError, match=message) as e:
            f.eval({i: np.array([[0, 1], [2, 2], [0, bad], [bad, 0]])})
        assert "'ids'" in str(e.value) and "'table'" in str(e.value) and "0 to 2" in str(e.value)
        assert f.eval({i: np.array([[0, 2.9]])}).tolist() == [[[0, 1], [4, 5]]]

    def test_in_a_sequence_is_named_by_sequence_and_step(self, bad, dtype):
        i = S.input_variable((), dtype=dtype)
        f = C.gather(table(dtype), i)
        with pytest.raises(ValueError, match="step 1 of sequence 2 of what is fed"):
            f.eval({i: [np.zeros(3, dtype), np.ones(1, dtype), np.array([0, bad], dtype)]})

    def test_along_another_axis(self, bad, dtype):
        i = C.input_variable(2, dtype=dtype)
        f = C.gather(C.constant(np.ones((2, 3), dtype)), i, axis=1)
        with pytest.raises(IndexError, match="Gather: the index"):
            f.eval({i: np.array([[0, bad]], dtype)})


@pytest.mark.parametrize("form", [
    lambda i: C.reshape(i, (2, 1)), lambda i: C.transpose(C.reshape(i, (2, 1)), (1, 0)), lambda i: i[1],
    lambda i: C.splice(i, C.constant([0.0])), lambda i: C.alias(i), lambda i: C.slice(i, 0, -1, 0),
    lambda i: C.reshape(C.slice(C.alias(i[0:2]), 0, 1, 2), ()), lambda i: C.squeeze(C.reshape(i, (1, 2))),
    lambda i: S.broadcast_as(i, S.input_variable(1, name="steps")), lambda i: C.cast(i, np.float32),
], ids=["reshaped", "transposed", "indexed", "joined", "alias", "sliced", "sliced twice", "squeezed", "spread", "cast"])
def test_indices_that_are_fed_are_checked_in_any_form(form):
    i = C.input_variable(2)
    f = C.gather(table(), form(i))
    steps = {v: [np.ones((2, 1), np.float32)] * 2 for v in f.arguments if v.name == "steps"}
    f.eval({i: [[1, 2], [2, 0]], **steps})
    with pytest.raises(IndexRangeError, match=r"the index 3, element \[1\] of sample 1"):
        f.eval({i: [[1, 2], [2, 3]], **steps})


def test_only_what_is_used_as_an_index_is_checked():
    x = C.input_variable(3)
    f = C.gather(table(), x[1]) * x[0] + x[2]
    assert f.eval({x: [[-5, 2, 7.5]]}).tolist() == [[[-20 + 7.5, -25 + 7.5]]]


class TestConstants:
    def test_are_checked_when_they_have_a_new_value(self):
        ids = C.constant([0, 2])
        f = C.gather(table(), ids)
        assert f.eval().tolist() == [[0, 1], [4, 5]]
        ids.value = np.float32([1, 5])
        for _ in range(2):
            with pytest.raises(IndexRangeError, match=r"the index 5, element \[1\] of a constant"):
                f.eval()
        ids.value = np.float32([1, 0])
        assert f.eval().tolist() == [[2, 3], [0, 1]]

    def test_that_a_function_assigns_are_checked_too(self):
        ids, new = C.constant([0, 2]), C.input_variable(2)
        f = C.combine([C.assign(ids, C.reduce_sum(new, C.Axis.default_batch_axis())), C.gather(table(), ids)])
        f.eval({new: [[3, 1]]})
        with pytest.raises(IndexRangeError, match="the index 3"):
            f.eval({new: [[0, 1]]})

    def test_in_a_function_for_jax(self):
        with pytest.raises(IndexRangeError, match="the index -1"):
            to_jax(C.gather(table(), C.constant([-1])) + C.input_variable(2))


def test_in_a_recurrence():
    weights, i = table(), S.input_variable(())
    state = C.placeholder(shape=())
    next_state = C.reduce_sum(C.gather(weights, i)) + 0 * S.past_value(state)
    fed = next_state.replace_placeholders({state: next_state.output})
    with pytest.raises(IndexRangeError, match="step 1 of sequence 0"):
        fed.eval({i: [np.float32([0, 3])]})

    number = C.placeholder(shape=())
    chosen = C.reduce_sum(C.gather(weights, i + S.past_value(number))) * 0.5  # 0.5 or more: the next index is 0
    computed = chosen.replace_placeholders({number: chosen.output})
    values = computed.eval({i: [np.float32([1, 0, 0]), np.float32([0, 1])]})
    assert [v.tolist() for v in values[1:]] == [[0.5, 2.5]]
    assert values[0][0] == 2.5 and np.isfinite(values[0][1]) and not np.isfinite(values[0][2])


def trainer_of(f, *parameters):
    loss = C.reduce_sum(C.square(f), axis=C.Axis.all_static_axes())
    return C.Trainer(f, loss, [C.momentum_sgd(list(parameters), 0.1, 0.9)])


def malformed(index):
    matrix = scipy.sparse.csr_matrix(np.eye(3, dtype=np.float32)[[0, 1]])
    matrix.indices[1] = index
    return matrix


@pytest.mark.parametrize("kind", ["gather", "sparse", "sequences"])
def test_training_stops_before_anything_changes(kind, tmp_path):
    weights = table()
    if kind == "gather":
        x, good, bad = C.input_variable(1), [[1], [2]], [[1], [3]]
        f = C.gather(weights, x)
    else:
        make = S.input_variable if kind == "sequences" else C.input_variable
        x = make(3, is_sparse=True)
        good, bad = ([malformed(i)] if kind == "sequences" else malformed(i) for i in (2, 3))
        f = C.times(x, weights)
    f = C.dropout(f, 0.5)
    trainer = trainer_of(f, weights)
    trainer.train_minibatch({x: good})
    before, seen = weights.value.copy(), trainer.total_number_of_samples_seen
    trainer.save_checkpoint(str(tmp_path / "before"))
    with pytest.raises(IndexRangeError):
        trainer.train_minibatch({x: bad})
    np.testing.assert_array_equal(weights.value, before)
    assert trainer.total_number_of_samples_seen == seen
    trainer.train_minibatch({x: good})
    after = weights.value.copy()
    trainer.restore_from_checkpoint(str(tmp_path / "before"))
    trainer.train_minibatch({x: good})  # the momentum and the numbers of dropout are as if there had been no error
    np.testing.assert_array_equal(weights.value, after)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("index", [3, -1])
def test_a_malformed_sparse_matrix_is_an_error_that_names_the_variable(kind, index):
    x = C.input_variable(3 if kind == "csr" else 2, is_sparse=True, name="words")
    matrix = malformed(index) if kind == "csr" else malformed(index).T
    with pytest.raises(ValueError, match=rf"(?s)'words'.*index {index} in (row|column) 1") as error:
        C.times(x, np.ones((x.shape[0], 1), np.float32)).eval({x: matrix})
    assert isinstance(error.value, IndexRangeError)


def test_a_malformed_matrix_of_samples_with_several_axes_is_an_error():
    x = C.input_variable((2, 3), is_sparse=True)
    with pytest.raises(IndexRangeError, match="index 4"):
        (x + 0).eval({x: malformed(4)})
