"""Ids that float32 cannot hold are exact, and sizes that int32 cannot number are errors."""

import jax
import numpy as np
import pytest
import scipy.sparse

import cntkjax as C
from cntkjax.graph.errors import ShapeError
from cntkjax.interop import to_jax

CLASSES = 2**24 + 8
IDS = [2**24 + 1, 3, 2**24 + 7]  # the first lies between two numbers of float32
WIDE = 2**31 + 5


@pytest.fixture(scope="module")
def table():
    return C.constant((np.arange(CLASSES) % 97).astype(np.float32).reshape(CLASSES, 1))


def rows(ids):
    return [float(i % 97) for i in ids]


COLUMN = np.array(IDS)[:, None]
FORMS = [COLUMN, COLUMN.astype(np.int32), [[i] for i in IDS], COLUMN.astype(np.uint64)]


@pytest.mark.parametrize("ids", FORMS, ids=["int64", "int32", "lists", "uint64"])
@pytest.mark.parametrize("look_up", [
    lambda table, i: C.gather(table, i),
    lambda table, i: C.times(C.one_hot(i, CLASSES, sparse_output=True), table),
], ids=["gather", "one_hot"])
def test_integers_stay_integers_where_they_are_indices(table, look_up, ids):
    i = C.input_variable(1)
    result = look_up(table, i).eval({i: ids})
    assert result.dtype == np.float32 and result.ravel().tolist() == rows(IDS)


def test_sequences_of_ids_are_exact(table):
    i = C.sequence.input_variable(1)
    first, second = C.gather(table, i).eval({i: [COLUMN, np.array([[5]])]})
    assert first.ravel().tolist() == rows(IDS) and second.ravel().tolist() == [5]


def test_the_same_integers_are_floats_for_other_operations(table):
    i = C.input_variable(1)
    looked_up, sums = C.combine([C.gather(table, i), i + 1]).eval({i: COLUMN}).values()
    assert looked_up.ravel().tolist() == rows(IDS)
    assert sums.dtype == np.float32 and sums.ravel().tolist() == [2**24, 4, 2**24 + 8]


def test_small_integers_after_large_ones_are_right_too(table):
    i = C.input_variable(1)
    f = C.gather(table, i)
    for ids in (IDS, [1, 2, 3], IDS):
        assert f.eval({i: np.array(ids)[:, None]}).ravel().tolist() == rows(ids)


def test_integers_that_int32_does_not_hold_are_rounded_as_in_cntk():
    x = C.input_variable(1)
    assert (x * 1).eval({x: np.array([[10**12 + 1]])}).tolist() == [[float(np.float32(10**12 + 1))]]


def test_gradients_of_what_integers_select_are_right(table):
    i, w = C.input_variable(1), C.parameter((CLASSES, 1))
    gradient = C.reduce_sum(C.gather(w, i)).grad({i: COLUMN}, wrt=[w])
    assert np.flatnonzero(np.asarray(gradient)).tolist() == sorted(IDS)


@pytest.mark.parametrize("kind", ["one_hot", "csr"])
def test_large_ids_of_sparse_data_are_exact(table, kind):
    x = C.input_variable(CLASSES, is_sparse=True)
    places = np.arange(len(IDS) + 1, dtype=np.int64), np.array(IDS, np.int64)
    data = C.Value.one_hot([[i] for i in IDS], CLASSES) if kind == "one_hot" else scipy.sparse.csr_matrix(
        (np.ones(len(IDS), np.float32), places[1], places[0]), shape=(len(IDS), CLASSES)
    )
    assert C.times(x, table).eval({x: data}).ravel().tolist() == rows(IDS)


@pytest.mark.parametrize("find", [C.argmax, C.argmin, lambda x: C.top_k(x, 1)])
@pytest.mark.parametrize("dtype, most", [(np.float16, 2**11 + 1), (np.float32, 2**24 + 1)])
def test_an_index_that_may_not_be_exact_is_an_error(find, dtype, most):
    find(C.input_variable(most, dtype=dtype))
    find(C.input_variable(most + 1, dtype=np.float64))
    with pytest.raises(ShapeError, match=rf"indices up to {most:,} are not exact in {np.dtype(dtype).name}"):
        find(C.input_variable(most + 1, dtype=dtype))


def test_sparse_data_that_are_too_wide_are_an_error():
    x = C.input_variable(WIDE, is_sparse=True)
    wide = scipy.sparse.csr_matrix((np.ones(1, np.float32), [WIDE - 1], [0, 1]), shape=(1, WIDE))
    message = "at most 2,147,483,648 elements, not 2,147,483,653"
    with pytest.raises(ValueError, match=message):
        C.Value.one_hot([[WIDE - 1]], WIDE)
    with pytest.raises(ValueError, match=message):
        C.alias(x).eval({x: wide})


def test_text_files_with_ids_that_int32_does_not_hold_are_an_error(tmp_path):
    (tmp_path / "ids.ctf").write_text(f"|x {WIDE - 1}:1\n")
    stream = C.io.StreamDef(field="x", shape=WIDE, is_sparse=True)
    with pytest.raises(ValueError, match="at most 2,147,483,648 elements, not 2,147,483,653"):
        deserializer = C.io.CTFDeserializer(str(tmp_path / "ids.ctf"), C.io.StreamDefs(x=stream))
        C.io.MinibatchSource(deserializer, randomize=False).next_minibatch(1)


def test_classes_and_rows_that_int32_cannot_number_are_errors():
    with pytest.raises(ShapeError, match="a sample of the output has 4,000,000,000 elements"):
        C.one_hot(C.input_variable(200), 20_000_000, sparse_output=True)
    with pytest.raises(ShapeError, match="has 2,147,483,653 elements; indices go up to 2,147,483,647"):
        C.gather(C.input_variable((WIDE, 1)), C.input_variable(1))
    with pytest.raises(ShapeError, match="indices go up to"):
        C.argmax(C.input_variable(WIDE, dtype=np.float64))


def test_tensors_of_more_than_2_to_the_31_elements_are_computed():
    """Only shapes are computed here: the values would take 17 GB."""
    x = C.input_variable((2**16, 2**16))
    f = C.reduce_sum(C.splice(C.slice(C.transpose(x * 2, (1, 0)), 0, 5, 2**16), x, axis=0), 0)
    function, parameters = to_jax(f)
    assert jax.eval_shape(function, parameters, jax.ShapeDtypeStruct((1, 2**16, 2**16), np.float32)).shape[-1] == 2**16
