"""Truncated back-propagation through time. The first table was recorded from CNTK 2.7 (golden/readers, lengths.ctf)."""

import numpy as np
import pytest

from cntkjax.io import MinibatchSource

LENGTHS = [9, 2, 6, 1, 12, 3, 7, 4]


@pytest.fixture
def source(ctf):
    """x is 100 * sequence + step."""
    text = "".join(f"{i} |x {100 * i + step} |w {step}:1\n" for i, n in enumerate(LENGTHS) for step in range(n))
    return lambda **options: MinibatchSource(
        ctf(text, x=1, w=(12,)), **{"randomize": False, "max_sweeps": 1, **options}
    )


def minibatches(source, size):
    minibatches = []
    while minibatch := source.next_minibatch(size):
        data = minibatch[source.streams.x]
        r = data.ragged
        assert (minibatch[source.streams.w].ragged.data.indices == r.data.ravel() % 100).all()
        assert (minibatch[source.streams.w].ragged.lengths == r.lengths).all()
        pieces = [p.ravel().astype(int).tolist() for p in r.sequences()]
        slots = list(zip(r.slots.tolist(), r.starts.tolist(), pieces, strict=True))
        minibatches.append((slots, data.end_of_sweep, data.asarray().shape))
    return minibatches


def test_minibatches_are_those_of_cntk(source):
    recorded = [
        ([0, 1, 100, 101, 300, 400], [0, 100, 300, 400], False, (4, 2, 1)),
        ([2, 3, 200, 201, 401, 402], [200], False, (3, 2, 1)),
        ([4, 5, 202, 203, 403, 404], [], False, (3, 2, 1)),
        ([6, 7, 204, 205, 405, 406], [], False, (3, 2, 1)),
        ([8, 407, 408, 500, 501, 600], [500, 600], False, (4, 2, 1)),
        ([409, 410, 502, 601, 602, 700], [700], False, (4, 2, 1)),
        ([411, 603, 604, 701, 702], [], False, (3, 2, 1)),
        ([605, 606, 703], [], True, (2, 2, 1)),
    ]
    actual = minibatches(source(truncation_length=2), 6)
    assert [sorted(x for _, _, piece in pieces for x in piece) for pieces, _, _ in actual] == [r[0] for r in recorded]
    firsts = [sorted(piece[0] for _, start, piece in pieces if start) for pieces, _, _ in actual]
    assert firsts == [r[1] for r in recorded]
    assert [(end, shape) for _, end, shape in actual] == [r[2:] for r in recorded]


@pytest.mark.parametrize(
    "lengths, length, size, sweeps, recorded",
    [
        ([4, 9, 4], 2, 4, 2, [4, 4, 4, -4, 4, 4, 4, -4, 2]),
        ([3, 1, 5, 1], 6, 18, 1, [-7, 3]),
        ([7, 3], 3, 6, 3, [-6, 6, 6, -6, -4, 2]),
        ([1, 2, 9, 7, 1, 4], 6, 30, 2, [-30, -17, 1]),
    ],
)
def test_a_sweep_ends_with_the_last_sequence_that_was_started(ctf, lengths, length, size, sweeps, recorded):
    text = "".join(f"{i} |x {step}\n" for i, n in enumerate(lengths) for step in range(n))
    source = MinibatchSource(ctf(text, x=1), randomize=False, max_sweeps=sweeps, truncation_length=length)
    actual = []
    while minibatch := source.next_minibatch(size):
        data = minibatch[source.streams.x]
        actual.append(-data.num_samples if data.end_of_sweep else data.num_samples)
    assert actual == recorded  # from CNTK 2.7; negative where a sweep ends


@pytest.mark.parametrize(
    "length, size, sweeps, randomize", [(1, 3, 1, False), (3, 9, 2, False), (4, 2, 1, True), (50, 60, 2, True)]
)
def test_a_segment_continues_where_the_last_one_in_its_slot_ended(source, length, size, sweeps, randomize):
    sequences, in_slot, ends = [], {}, 0
    for pieces, sweep_end, _ in minibatches(
        source(truncation_length=length, max_sweeps=sweeps, randomize=randomize), size
    ):
        ends += sweep_end
        assert sum(len(piece) for _, _, piece in pieces) <= max(size // length, 1) * length
        assert all(np.bincount([s for s, _, p in pieces for _ in p]) <= length)
        for slot, start, piece in pieces:
            if start:
                sequences.append([])
                in_slot[slot] = sequences[-1]
            in_slot[slot].extend(piece)
    assert sorted(sequences) == sorted([[100 * i + k for k in range(n)] for i, n in enumerate(LENGTHS)] * sweeps)
    assert ends == sweeps


def test_max_samples_and_workers(source):
    loaded = minibatches(source(truncation_length=3, max_samples=10, max_sweeps=2**64 - 1), 6)
    assert sorted(x for pieces, _, _ in loaded for _, _, piece in pieces for x in piece) == [*range(9), 100, 101]
    shares = []
    for rank in range(2):
        worker = source(truncation_length=3)
        while minibatch := worker.next_minibatch(6, num_data_partitions=2, partition_index=rank):
            shares += minibatch[worker.streams.x].ragged.data.ravel().astype(int).tolist()
    assert sorted(shares) == [100 * i + k for i, n in enumerate(LENGTHS) for k in range(n)]


def test_streams_must_have_the_same_length(ctf):
    source = MinibatchSource(ctf("0 |x 1 |y 1\n0 |x 2\n", x=1, y=1), truncation_length=1, randomize=False)
    with pytest.raises(RuntimeError, match=r"have to be of the same length .* \{'x': 2, 'y': 1\}"):
        source.next_minibatch(1)


def test_pieces_are_padded_to_the_truncation_length(ctf):
    """As in CNTK, also where each sequence is shorter."""
    source = MinibatchSource(ctf("0 |x 1\n1 |x 2\n", x=1), truncation_length=2, randomize=False, max_sweeps=1)
    data = source.next_minibatch(4)[source.streams.x]
    assert data.asarray().tolist() == [[[1], [0]], [[2], [0]]] and data.mask.tolist() == [[2, 0], [2, 0]]
    assert data.shape == data.data.shape == (2, 2, 1)


@pytest.mark.parametrize(("length", "size", "counts"), [  # as in CNTK
    (2, 8, [2, 1, 1]), (2, 16, [3, 3, 2]), (3, 9, [2, 1]), (3, 13, [2, 1, 1]), (3, 16, [3, 2]), (4, 40, [4, 3, 3]),
])
def test_workers_share_the_slots_of_a_minibatch(ctf, length, size, counts):
    path = ctf("".join(f"{i} |x {i}\n" for i in range(40) for _ in range(6)), x=1)
    for rank, count in enumerate(counts):
        source = MinibatchSource(path, truncation_length=length, randomize=False)
        minibatch = source.next_minibatch(size, num_data_partitions=len(counts), partition_index=rank)
        assert minibatch[source.streams.x].num_sequences == count
