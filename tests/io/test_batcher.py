"""Minibatches: how many sequences they have, where sweeps end, and positions. Literals were recorded from CNTK 2.7."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.numbered import batch, batcher


def test_minibatches_have_as_many_whole_sequences_as_fit_but_at_least_one():
    source = batcher(sweeps=1)
    assert [batch(source, 11)[0] for _ in range(6)] == [[0, 1], [2, 3], [4], [5, 6], [7], []]


def test_minibatches_may_cross_the_end_of_a_sweep():
    source = batcher([1] * 10, sweeps=2)
    assert [batch(source, 7) for _ in range(4)] == [
        ([0, 1, 2, 3, 4, 5, 6], False), ([7, 8, 9, 0, 1, 2, 3], True), ([4, 5, 6, 7, 8, 9], True), ([], False),
    ]


def test_a_minibatch_may_hold_several_sweeps():
    assert batch(batcher([1] * 4), 10) == ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], True)


def test_workers_take_sequences_in_turns_and_end_sweeps_when_they_pass_them():
    recorded = {
        0: [([0], False, 9), ([3], False, 33), ([6], False, 40), ([1], True, 62), ([4], False, 74), ([7], True, 88)],
        1: [([1], False, 18), ([4], False, 30), ([7], True, 44), ([2], False, 61), ([5], False, 77), ([], False, 88)],
        2: [([2], False, 17), ([5], False, 33), ([0], True, 53), ([3], False, 77), ([6], False, 84), ([], False, 88)],
    }
    for rank, expected in recorded.items():
        source = batcher(sweeps=2)
        actual = [(*batch(source, 3, (3, rank)), source.position) for _ in range(6)]
        assert [g[0] for g in actual] == [e[0] for e in expected]
        assert [g[2] for g in actual if g[0]] == [e[2] for e in expected if e[0]]
        assert [g[1] for g in actual if g[0]] == [e[1] for e in expected if e[0]]


def test_a_worker_waits_for_its_turn_through_sweeps_with_fewer_sequences_than_workers():
    actual = []
    source = batcher([1], samples=30)
    while (sequences := batch(source, 2, (3, 0)))[0]:
        actual.append((*sequences, source.position))
    assert actual == [([0, 0], True, n) for n in (4, 10, 16, 22, 28)]  # from CNTK 2.7


@pytest.mark.parametrize(
    "lengths, samples, size, shard, end", [([3, 2, 3, 3], 5, 3, (2, 1), 5), ([1] * 6, 33, 4, (2, 0), 33)]
)
def test_the_final_position_is_that_of_the_first_sequence_beyond_max_samples(lengths, samples, size, shard, end):
    source = batcher(lengths, samples=samples)
    while batch(source, size, shard)[0]:
        pass
    assert source.position == end  # from CNTK 2.7


def test_the_number_of_workers_may_change():
    source = batcher([1] * 60)
    assert [batch(source, 4)[0], batch(source, 2, (2, 0))[0], source.position, batch(source, 2, (2, 1))[0]] == [
        [0, 1, 2, 3], [4, 6], 7, [7, 9],
    ]


def test_max_samples_excludes_sequences_that_begin_after_it():
    source = batcher(samples=20)
    assert [batch(source, 12)[0] for _ in range(4)] == [[0, 1], [2, 3], [4], []]
    source = batcher([1] * 10, samples=14)
    assert [batch(source, 4)[0] for _ in range(5)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3], []]


@pytest.mark.parametrize("position, expected", [
    (5, [1, 2, 3]), (9, [1, 2, 3]), (10, [2, 3]), (44, [0, 1]), (45, [1, 2, 3]), (60, [3, 4]), (1000, []),
])
def test_a_position_is_rounded_up_to_the_next_sequence(position, expected):
    source = batcher(sweeps=2)
    source.seek(position)
    assert batch(source, 13)[0] == expected


shuffled = {"randomize": st.just(True), "seed": st.integers(0, 9), "tumbling_windows": st.booleans()}
orders = st.one_of(
    st.just({}),
    st.fixed_dictionaries(shuffled | {"window_in_chunks": st.integers(1, 5)}),
    st.fixed_dictionaries(shuffled | {"window_in_samples": st.integers(1, 50)}),
)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=30), st.integers(1, 7), orders, st.integers(1, 12),
    st.integers(1, 3), st.booleans(),
)
def test_a_sweep_yields_every_sequence_once_over_all_workers(lengths, chunks, order, size, workers, prefetch):
    """All workers together take every sequence once in each sweep; none takes more than the size of a minibatch."""
    sweeps, counts = 2, Counter()
    for rank in range(workers):
        source = batcher(lengths, min(chunks, len(lengths)), sweeps, prefetch=prefetch, **order)
        while True:
            sequences, _ = batch(source, size, (workers, rank))
            if not sequences:
                break
            counts.update(sequences)
            assert sum(lengths[i] for i in sequences) <= size or len(sequences) == 1
        assert source.position == sweeps * sum(lengths)
    assert counts == dict.fromkeys(range(len(lengths)), sweeps)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
    st.integers(1, 7),
    orders,
    st.integers(1, 12),
    st.integers(0, 9),
)
def test_seek_resumes_identically(lengths, chunks, order, size, steps):
    sources = [batcher(lengths, min(chunks, len(lengths)), **order) for _ in range(2)]
    for _ in range(steps):
        batch(sources[0], size)
    sources[1].seek(sources[0].position)
    for _ in range(8):
        assert batch(sources[0], size) == batch(sources[1], size)
