import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cntkjax.engine.data.ragged import Ragged, SparseRows, ranges

seeds = st.integers(0, 2**32 - 1)


def some_rows(seed: int, rows: int, width: int = 5) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(1, 9, (rows, width)).astype(np.float32) * (random.random((rows, width)) < 0.4)


@st.composite
def raggeds(draw, sparse=None):
    lengths = np.array(draw(st.lists(st.integers(0, 4), max_size=8)), np.int32)
    data = some_rows(draw(seeds), int(lengths.sum()))
    is_sparse = draw(st.booleans()) if sparse is None else sparse
    starts = draw(st.none() | st.just(np.arange(len(lengths)) % 3 > 0))
    return Ragged(SparseRows.from_dense(data) if is_sparse else data, lengths, starts)


def dense(part) -> np.ndarray:
    return part.to_dense() if isinstance(part, SparseRows) else part


def dense_sequences(ragged: Ragged) -> list:
    return [dense(part).tolist() for part in ragged.sequences()]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5))))
def test_ranges_are_aranges_end_to_end(pairs):
    begins, lengths = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    expected = [x for begin, length in pairs for x in range(begin, begin + length)]
    assert ranges(begins, lengths).tolist() == expected


class TestSparseRows:
    @given(seeds, st.integers(0, 6))
    def test_conversion_to_dense_is_reversible(self, seed, rows):
        array = some_rows(seed, rows)
        np.testing.assert_array_equal(SparseRows.from_dense(array).to_dense(), array)

    @given(seeds, st.integers(0, 6), st.slices(6))
    def test_a_slice_is_a_slice_of_the_dense_rows(self, seed, rows, where):
        array = some_rows(seed, rows)
        np.testing.assert_array_equal(SparseRows.from_dense(array)[where].to_dense(), array[where])

    @given(seeds, st.lists(st.integers(0, 5)))
    def test_take_is_take_of_the_dense_rows(self, seed, where):
        array = some_rows(seed, 6)
        np.testing.assert_array_equal(SparseRows.from_dense(array).take(where).to_dense(), array[np.array(where, int)])

    @given(seeds)
    def test_a_mask_chooses_rows(self, seed):
        array, mask = some_rows(seed, 4), np.array([True, False, True, False])
        np.testing.assert_array_equal(SparseRows.from_dense(array)[mask].to_dense(), array[mask])

    @given(seeds, st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def test_concatenation_joins_rows(self, seed, counts):
        arrays = [some_rows(seed + i, n) for i, n in enumerate(counts)]
        joined = SparseRows.concatenate(SparseRows.from_dense(a) for a in arrays)
        np.testing.assert_array_equal(joined.to_dense(), np.concatenate(arrays))

    @given(seeds, st.integers(0, 6))
    def test_conversion_to_scipy_is_reversible(self, seed, rows):
        array = some_rows(seed, rows)
        matrix = SparseRows.from_dense(array).to_csr()
        np.testing.assert_array_equal(matrix.toarray(), array)
        np.testing.assert_array_equal(SparseRows.from_csr(matrix.tocsc()).to_dense(), array)

    def test_an_element_stored_twice_is_added_up(self):
        rows = SparseRows(np.array([0, 2]), np.array([1, 1]), np.array([2.0, 3.0]), width=2)
        assert rows.to_dense().tolist() == [[0.0, 5.0]]

    @pytest.mark.parametrize(
        "indptr, values, expected",
        [
            ([0, 1, 2], [1, 1], True),
            ([0], [], True),
            ([0, 1, 2], [1, 2], False),
            ([0, 2, 2], [1, 1], False),
            ([0, 1], [0], False),
        ],
    )
    def test_one_hot_means_exactly_a_one_in_every_row(self, indptr, values, expected):
        indices = np.arange(len(values), dtype=np.int32)
        assert SparseRows(np.array(indptr), indices, np.array(values, np.float32), 3).is_one_hot is expected

    @pytest.mark.parametrize("indptr", [[], [1, 2], [0, 3]])
    def test_arrays_that_do_not_fit_are_refused(self, indptr):
        with pytest.raises(ValueError, match="indptr has to begin with 0 and to end with the number of nonzeros"):
            SparseRows(np.array(indptr, np.int64), np.zeros(2, np.int32), np.zeros(2, np.float32), 3)

    def test_concatenating_different_widths_is_refused(self):
        with pytest.raises(ValueError, match=r"got widths \[2, 3\]"):
            SparseRows.concatenate(SparseRows.from_dense(np.ones((1, width))) for width in (2, 3))


class TestRagged:
    @given(raggeds())
    def test_counts_sequences_and_samples(self, ragged):
        assert ragged.num_sequences == len(ragged.sequences()) == len(ragged.lengths)
        assert ragged.num_samples == sum(map(len, ragged.sequences())) == ragged.offsets[-1]

    @given(raggeds(), st.data())
    def test_take_is_indexing_the_list_of_sequences(self, ragged, data):
        indices = data.draw(st.lists(st.integers(0, ragged.num_sequences - 1))) if ragged.num_sequences else []
        selection, all_sequences = ragged.take(indices), dense_sequences(ragged)
        assert dense_sequences(selection) == [all_sequences[i] for i in indices]
        if ragged.starts is not None:
            assert selection.starts.tolist() == [ragged.starts[i] for i in indices]

    @given(raggeds(), st.slices(8))
    def test_take_by_slice_is_slicing_the_list_of_sequences(self, ragged, where):
        assert dense_sequences(ragged.take(where)) == dense_sequences(ragged)[where]

    @given(st.booleans().flatmap(lambda sparse: st.lists(raggeds(sparse), min_size=1, max_size=4)))
    def test_concatenate_is_adding_the_lists_of_sequences(self, parts):
        joined = Ragged.concatenate(parts)
        assert dense_sequences(joined) == [sequence for part in parts for sequence in dense_sequences(part)]
        expected = [s for p in parts for s in (np.ones(p.num_sequences, bool) if p.starts is None else p.starts)]
        assert (np.ones(joined.num_sequences, bool) if joined.starts is None else joined.starts).tolist() == expected

    @given(raggeds())
    def test_conversion_to_sequences_is_reversible(self, ragged):
        if ragged.num_sequences:
            again = Ragged.from_sequences(ragged.sequences())
            assert dense_sequences(again) == dense_sequences(ragged)
            assert (again.is_sparse, again.dtype) == (ragged.is_sparse, ragged.dtype)

    @given(raggeds(sparse=True))
    def test_scipy_matrices_are_sequences_too(self, ragged):
        if ragged.num_sequences:
            again = Ragged.from_sequences([rows.to_csr() for rows in ragged.sequences()])
            assert dense_sequences(again) == dense_sequences(ragged)
            np.testing.assert_array_equal(again.to_csr().toarray(), ragged.data.to_dense())

    def test_without_a_sequence_axis_each_sample_stands_for_itself(self):
        batch = Ragged(np.arange(6.0).reshape(3, 2), None)
        assert (batch.num_samples, batch.num_sequences, batch.offsets.tolist()) == (3, 3, [0, 1, 2, 3])
        assert batch.take([2, 0]).data.tolist() == [[4.0, 5.0], [0.0, 1.0]]
        assert batch.take([2, 0]).lengths is None
        assert dense_sequences(batch)[1] == [[2.0, 3.0]]

    def test_a_slice_of_dense_sequences_is_a_view(self):
        batch = Ragged(np.zeros((5, 2)), np.array([2, 3], np.int32))
        assert batch.take(slice(1, None)).data.base is batch.data

    def test_lengths_have_to_add_up(self):
        with pytest.raises(ValueError, match="the lengths add up to 3, but there are 4 samples"):
            Ragged(np.zeros((4, 1)), np.array([1, 2], np.int32))

    def test_starts_are_one_for_each_sequence(self):
        with pytest.raises(ValueError, match="starts is for 1 sequences, but there are 2"):
            Ragged(np.zeros((3, 1)), np.array([1, 2], np.int32), np.array([True]))

    def test_no_sequence_at_all_is_refused(self):
        with pytest.raises(ValueError, match="at least one sequence"):
            Ragged.from_sequences([])

    def test_dense_and_sparse_do_not_mix(self):
        array = np.ones((2, 3))
        with pytest.raises(ValueError, match="all dense or all sparse"):
            Ragged.from_sequences([array, SparseRows.from_dense(array)])
        with pytest.raises(ValueError, match="all dense or all sparse"):
            Ragged.concatenate([Ragged(array, None), Ragged(SparseRows.from_dense(array), None)])
        with pytest.raises(ValueError, match="all have sequences, or none of them"):
            Ragged.concatenate([Ragged(array, None), Ragged(array, np.array([2], np.int32))])
