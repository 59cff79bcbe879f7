"""Properties of minibatches: sizes, sweeps, shuffling, workers, positions. Literals were recorded from CNTK 2.7."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cntkjax as C
from cntkjax.engine.data.ragged import Ragged
from cntkjax.io import FULL_DATA_SWEEP, CTFDeserializer, MinibatchSource, StreamDef, StreamDefs
from cntkjax.io._batcher import Batcher
from cntkjax.io._sampler import Sampler
from cntkjax.io._streams import StreamInformation
from cntkjax.io.deserializer import ChunkedDeserializer

LENGTHS = [9, 2, 6, 1, 12, 3, 7, 4]


class Numbered(ChunkedDeserializer):
    """Sequence i has lengths[i] samples, all of them i."""

    def __init__(self, lengths, chunks):
        self.streams = [StreamInformation("x", 0, "dense", np.float32, (1,))]
        self._numbers = np.array_split(np.arange(len(lengths)), chunks)
        self._all, self.num_chunks, self.reads = np.array(lengths), len(self._numbers), []

    def chunk_sizes(self):
        return np.array([len(numbers) for numbers in self._numbers])

    def read_chunk(self, chunk):
        self.reads.append(chunk)
        numbers = self._numbers[chunk]
        lengths = self._all[numbers]
        return {"x": Ragged(np.repeat(numbers, lengths)[:, None].astype(np.float32), lengths.astype(np.int32))}


def batcher(lengths=LENGTHS, chunks=1, sweeps=2**64, samples=2**64, prefetch=False, tumbling_windows=False, **order):
    deserializer = Numbered(lengths, chunks)
    deserializer.tumbling_windows = tumbling_windows
    return Batcher(Sampler(deserializer, **order), sweeps, samples, prefetch)


def batch(a_batcher, size, shard=(1, 0)):
    """Numbers of the sequences of the next minibatch, and whether a sweep ended."""
    parts, ended = a_batcher.next_batch(size, shard)
    streams = [part.data["x"].take(part.rows) for part in parts]
    return [int(s[0, 0]) for stream in streams for s in stream.sequences()], ended


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


def test_shuffling_depends_on_seed_and_sweep_only():
    def sweeps(seed):
        source = batcher([1] * 50, 5, randomize=True, window_in_chunks=2, seed=seed)
        return [tuple(batch(source, 50)[0]) for _ in range(2)]

    assert sweeps(1) == sweeps(1)
    assert sweeps(1)[1] == sweeps(2)[0]
    assert len({*sweeps(1), *sweeps(2), tuple(range(50))}) == 4


@pytest.mark.parametrize("window", [{"window_in_chunks": 3}, {"window_in_samples": 30}])
def test_only_the_chunks_of_a_window_are_in_memory(window):
    deserializer = Numbered([1] * 60, 10)
    source, chunk_counts = Batcher(Sampler(deserializer, randomize=True, **window), 2, 2**64, False), []
    while batch(source, 4)[0]:
        chunk_counts.append(len(deserializer._cache))
    assert max(chunk_counts) <= 5
    assert len(deserializer.reads) >= 20
    assert not deserializer._cache


def test_a_single_shuffled_chunk_goes_to_the_first_worker_as_in_cntk(tmp_path):
    path = tmp_path / "one.ctf"
    path.write_text("".join(f"|x {i}\n" for i in range(6)))

    def num_samples(rank):
        source = MinibatchSource(CTFDeserializer(str(path), StreamDefs(x=StreamDef("x", 1))), max_sweeps=1)
        minibatch = source.next_minibatch(20, num_data_partitions=2, partition_index=rank)
        return minibatch[source.streams.x].num_samples if minibatch else 0

    assert [num_samples(0), num_samples(1)] == [6, 0]


def test_shuffled_chunks_are_distributed_so_that_no_worker_reads_those_of_another():
    sources = [batcher([1] * 60, 10, 1, randomize=True, window_in_chunks=4) for _ in range(2)]
    shares = [{i // 6 for i in batch(source, 60, (2, rank))[0]} for rank, source in enumerate(sources)]
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 10


def test_data_that_fit_into_one_window_are_read_once():
    deserializer = Numbered([1] * 60, 10)
    source = Batcher(Sampler(deserializer, True, 128), 3, 2**64, True)
    while batch(source, 7)[0]:
        pass
    assert sorted(deserializer.reads) == list(range(10))


def test_prefetched_chunks_are_the_next_ones():
    deserializer = Numbered([1] * 6, 3)
    source = Batcher(Sampler(deserializer), 2, 2**64, True)
    assert [batch(source, 2)[0] for _ in range(7)] == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], []]
    assert deserializer.reads == [0, 1, 2, 0, 1, 2]


def test_an_error_in_a_prefetched_chunk_is_raised_with_its_minibatch():
    deserializer = Numbered([1] * 4, 2)
    read = deserializer.read_chunk

    def fails(chunk):
        if chunk == 1:
            raise RuntimeError("bad chunk")
        return read(chunk)

    deserializer._known_lengths[1] = np.ones(2, np.int32)
    deserializer.read_chunk = fails
    source = Batcher(Sampler(deserializer), 1, 2**64, True)
    assert batch(source, 2)[0] == [0, 1]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="bad chunk"):
            batch(source, 2)
    deserializer.read_chunk = read
    assert batch(source, 2)[0] == [2, 3]


class TestMinibatchSource:
    def test_streams_and_their_data(self, ctf):
        source = MinibatchSource(ctf("0 |x 1 2 |w 1:1\n0 |x 3 4\n1 |x 5 6 |w 2:2\n", x=2, w=(3,)), randomize=False)
        assert [repr(info) for info in source.stream_infos()] == ["x([2])", "w([3])"]
        assert source["x"] is source.streams.x is source.stream_info("x")
        assert source.is_infinite()
        minibatch = source.next_minibatch(3)
        x, w = minibatch[source.streams.x], minibatch[source.streams.w]
        assert (x.num_sequences, x.num_samples, x.end_of_sweep, x.shape, x.is_sparse) == (2, 3, True, (2, 2, 2), False)
        assert (w.num_sequences, w.num_samples, w.shape, w.is_sparse, len(w)) == (2, 2, (2, 1, 3), True, 2)
        assert x.mask.tolist() == [[2, 1], [2, 0]]
        assert x.asarray().tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
        assert [s.tolist() for s in x.as_sequences()] == [[[1, 2], [3, 4]], [[5, 6]]]
        assert [s.toarray().tolist() for s in w.as_sequences()] == [[[0, 1, 0]], [[0, 0, 2]]]
        assert repr(x) == "MinibatchData(data=Value([2 x 2 x 2], CPU), samples=3, seqs=2)"

    def test_input_map_selects_and_renames_streams(self, ctf):
        source = MinibatchSource(ctf("|x 1 |y 2\n", x=1, y=1), randomize=False, max_sweeps=1)
        minibatch = source.next_minibatch(1, input_map={"features": source.streams.x})
        assert list(minibatch) == ["features"]
        assert minibatch["features"].asarray().tolist() == [[[1]]]
        assert source.next_minibatch(1, input_map={"features": source.streams.x}) == {}

    def test_the_longest_stream_counts_or_the_one_that_defines_the_size(self, ctf, read_all):
        text = "".join(f"{i} |x {i} |y {i}\n{i} |x 9\n" for i in range(4))
        assert len(read_all(MinibatchSource(ctf(text, x=1, y=1), randomize=False, max_sweeps=1), 2)) == 4
        by_y = MinibatchSource(ctf(text, x=1, y=1, defining="y"), randomize=False, max_sweeps=1)
        assert len(read_all(by_y, 2)) == 2
        assert by_y.current_position == {"minibatchSourcePosition": 4}

    def test_a_stream_has_the_name_it_is_given(self, ctf):
        path = ctf("|x 1\n", x=1)["file"]
        source = MinibatchSource(CTFDeserializer(path, StreamDefs(features=StreamDef("x", 1))))
        assert list(source.next_minibatch(1)) == [source.streams.features]

    def test_full_data_sweep_is_one_sweep(self, forty, read_all):
        minibatches = read_all(MinibatchSource(forty(), max_samples=FULL_DATA_SWEEP), 20)
        assert sorted(y for m in minibatches for ((y,),) in m["y"]) == list(range(40))

    def test_a_checkpoint_resumes_identically(self, forty, read_all):
        options = {"max_sweeps": 2, "randomization_seed": 3, "randomization_window_in_chunks": 3}
        source, other = (MinibatchSource(forty(chunk=120), **options) for _ in range(2))
        read_all(source, 15, limit=9)
        other.restore_from_checkpoint(source.get_checkpoint_state())
        rest = read_all(source, 15)
        assert rest
        assert rest == read_all(other, 15)
        other.current_position = {"minibatchSourcePosition": 0}
        assert other.current_position == {"minibatchSourcePosition": 0}

    def test_nothing_is_parsed_before_it_is_needed(self, ctf):
        MinibatchSource(ctf("|x 1\n|x bad\n", x=1))

    def test_frame_mode_requires_single_samples(self, ctf, read_all):
        assert read_all(MinibatchSource(ctf("|x 1\n|x 2\n", x=1), frame_mode=True, randomize=False, max_sweeps=1))
        source = MinibatchSource(ctf("1 |x 1\n1 |x 2\n", x=1), frame_mode=True)
        with pytest.raises(RuntimeError, match="frame_mode: stream 'x' has a sequence of 2 samples"):
            source.next_minibatch(3)

    @pytest.mark.parametrize("arguments, message", [
        ({"max_sweeps": 1, "max_samples": 5}, "max_samples and max_sweeps exclude each other"),
        ({"max_samples": 0}, "max_samples is 0"),
        ({"frame_mode": True, "truncation_length": 2}, "frame_mode and truncation_length exclude each other"),
        ({"randomization_window_in_samples": 20}, "randomization_window_in_chunks=0"),
    ])
    def test_arguments_that_exclude_each_other(self, ctf, arguments, message):
        with pytest.raises(RuntimeError, match=message):
            MinibatchSource(ctf("|x 1\n", x=1), **arguments)

    @pytest.mark.parametrize("arguments, message", [
        ((0,), "has to be positive, not 0"),
        ((-1,), "has to be positive, not -1"),
        ((4, None, None, 2, 2), "partition_index 2 is not one of 2 partitions"),
    ])
    def test_an_invalid_request_is_an_error(self, ctf, arguments, message):
        with pytest.raises(ValueError, match=message):
            MinibatchSource(ctf("|x 1\n", x=1)).next_minibatch(*arguments)

    def test_a_worker_without_a_share_gets_nothing_and_does_not_block(self, ctf):
        source = MinibatchSource(ctf("|x 1\n", x=1), randomize=False)
        assert source.next_minibatch(4, num_data_partitions=3, partition_index=1) != {}
        source = MinibatchSource(ctf("|x 1\n", x=1), randomize=False, max_sweeps=1)
        assert source.next_minibatch(4, num_data_partitions=3, partition_index=1) == {}

    def test_invalid_arguments_and_checkpoints_are_errors(self, ctf):
        with pytest.raises(RuntimeError, match="No stream found matching given name 'z'. The streams are: x"):
            MinibatchSource(ctf("|x 1\n", x=1)).stream_info("z")
        with pytest.raises(ValueError, match="at least one deserializer"):
            MinibatchSource([])
        with pytest.raises(TypeError, match="5 is no deserializer"):
            MinibatchSource([5])
        with pytest.raises(ValueError, match=r"no file is given\n\n\[CALL STACK\]\ntest_source.py"):
            MinibatchSource(CTFDeserializer("", streams={}))
        with pytest.raises(RuntimeError, match="no stream is asked for"):
            MinibatchSource(ctf("|x 1\n"))
        with pytest.raises(RuntimeError, match="Only one stream can define the minibatch size, but several do: a, b"):
            definitions = {n: StreamDef(n, 1, defines_mb_size=True) for n in "ab"}
            MinibatchSource(CTFDeserializer(ctf("|a 1 |b 1\n")["file"], StreamDefs(**definitions)))
        with pytest.raises(RuntimeError, match=r"two streams are read from '\|a'"):
            definitions = {n: StreamDef("a", 1) for n in "xy"}
            MinibatchSource(CTFDeserializer(ctf("|a 1\n")["file"], StreamDefs(**definitions)))
        with pytest.raises(ValueError, match="stream name for key x must be specified"):
            CTFDeserializer("f", StreamDefs(x=StreamDef(shape=1)))
        with pytest.raises(ValueError, match="Checkpoint misses required field minibatchSourcePosition"):
            MinibatchSource(ctf("|x 1\n", x=1)).restore_from_checkpoint({"a": 1})


class TestSeveralDeserializers:
    def test_sequences_are_matched_by_id_in_the_order_of_the_first(self, ctf, read_all):
        a = ctf("3 |a 3\n1 |a 1\n1 |a 11\n2 |a 2\n9 |a 9\n4 |a 4\n", {"chunkSizeInBytes": 20}, a=1)
        b = ctf("1 |b 100\n2 |b 200\n2 |b 201\n3 |b 300\n4 |b 400\n5 |b 500\n", {"chunkSizeInBytes": 20}, b=1)
        assert read_all(MinibatchSource([a, b], randomize=False, max_sweeps=1), 2) == [
            {"a": [[[3]]], "b": [[[300]]]},
            {"a": [[[1], [11]]], "b": [[[100]]]},
            {"a": [[[2]]], "b": [[[200], [201]]]},
            {"a": [[[4]]], "b": [[[400]]]},
        ]

    def test_sequences_without_ids_are_matched_by_number(self, ctf, read_all):
        a, b = (
            ctf("".join(f"|{s} {i}\n" for i in range(20)), {"chunkSizeInBytes": n}, **{s: 1})
            for s, n in (("a", 15), ("b", 40))
        )
        minibatches = read_all(MinibatchSource([a, b], max_sweeps=1, randomization_window_in_chunks=2), 4)
        assert all(m["a"] == m["b"] for m in minibatches)
        assert sorted(v for m in minibatches for ((v,),) in m["a"]) == list(range(20))

    def test_chunks_without_common_sequences(self, ctf, read_all):
        a, b = ctf("1 |a 1\n2 |a 2\n", {"chunkSizeInBytes": 1}, a=1), ctf("2 |b 2\n", b=1)
        assert read_all(MinibatchSource([a, b], max_sweeps=1, randomize=False)) == [{"a": [[[2]]], "b": [[[2]]]}]

    def test_one_of_them_may_define_the_size(self, ctf, read_all):
        a, b = ctf("1 |a 1\n1 |a 1\n2 |a 2\n", a=1), ctf("1 |b 1\n2 |b 2\n", b=1, defining="b")
        assert len(read_all(MinibatchSource([a, b], max_sweeps=1, randomize=False), 2)) == 1

    def test_streams_of_the_same_name_are_refused(self, ctf):
        with pytest.raises(RuntimeError, match="Two streams with the same name 'x' have been found"):
            MinibatchSource([ctf("|x 1\n", x=1), ctf("|x 1\n", x=1)])


def test_streams_are_numbered_by_name_and_listed_backwards(tmp_path):
    """Programs unpack ``features, labels = minibatch.items()``, in whatever order they declare the streams."""

    def file(*names):
        path = tmp_path / f"{names[0]}.ctf"
        path.write_text("".join(f"{i} " + " ".join(f"|{n} {i}" for n in names) + "\n" for i in range(3)))
        return CTFDeserializer(str(path), StreamDefs(**{n: StreamDef(field=n, shape=1) for n in names}))

    source = MinibatchSource([file("z", "B"), file("y", "a", "m")], randomize=False)
    assert [info.name for info in source.next_minibatch(2)] == ["B", "z", "a", "m", "y"]
    assert [(info.name, info.m_id) for info in source.stream_infos()] == [
        ("y", 4), ("m", 3), ("a", 2), ("z", 1), ("B", 0)
    ]
    assert list(source.streams) == ["y", "m", "a", "z", "B"]


def test_get_next_minibatch_has_the_arguments_of_the_compiled_module(tmp_path):
    file = tmp_path / "d.ctf"
    file.write_text("|x 1 2\n|x 2 3\n|x 3 4\n|x 4 5\n")
    described = CTFDeserializer(str(file), StreamDefs(x=StreamDef("x", 2)))

    def samples(*arguments):
        source = MinibatchSource(described, randomize=False)
        return source.get_next_minibatch(*arguments)[source.streams.x].num_samples

    assert [samples(*sizes) for sizes in [(3,), (3, C.cpu()), (0, 3, C.cpu())]] == [3, 3, 3]
    assert [samples(*sizes) for sizes in [(0, 4, 2, 1), (0, 4, 2, 1, C.cpu())]] == [2, 2]
    with pytest.raises(RuntimeError, match="are in samples"):
        samples(3, 0, C.cpu())
    assert MinibatchSource.full_data_sweep == 2**64 - 2 and MinibatchSource.infinitely_repeat == 2**64 - 1


def test_streams_are_found_by_the_type_of_a_variable(tmp_path):
    file = tmp_path / "d.ctf"
    file.write_text("|x 1 2 |y 1 2 |z 3\n")
    streams = StreamDefs(x=StreamDef("x", 2), y=StreamDef("y", 2), z=StreamDef("z", 1))
    source = MinibatchSource(CTFDeserializer(str(file), streams), randomize=False)
    assert source.stream_info(C.input_variable(1)).name == "z"
    with pytest.raises(RuntimeError, match="No stream found"):
        source.stream_info(C.input_variable(3))
    with pytest.raises(RuntimeError, match="Several streams found"):
        source.stream_info(C.input_variable(2))


def test_streams_describe_themselves_as_in_the_compiled_module():
    info = StreamInformation("x", 0, "dense", np.float32, (2, 3))
    assert info.m_sample_layout.dimensions() == (2, 3) and info.as_string() == "x([2 x 3])"
    configuration = C.io.StreamConfiguration("x", 2, True, "al", True)
    assert (configuration.m_stream_name, configuration.m_dim, configuration.m_is_sparse) == ("x", 2, True)
    assert (configuration.m_stream_alias, configuration.m_defines_mb_size) == ("al", True)
    assert C.io.StreamConfiguration("x", 2).m_stream_alias == ""


@pytest.mark.parametrize("truncation_length", [0, 1])
def test_after_the_end_a_size_of_0_is_no_error(tmp_path, truncation_length):
    path = tmp_path / "x.ctf"
    path.write_text("|x 1\n|x 2\n")
    streams = StreamDefs(x=StreamDef("x", 1))
    options = {"max_sweeps": 1, "randomize": False, "truncation_length": truncation_length}
    source = MinibatchSource(CTFDeserializer(str(path), streams), **options)
    for _ in range(2):
        with pytest.raises(ValueError, match="has to be positive, not 0"):
            source.next_minibatch(0)
        source.next_minibatch(1)
    assert source.next_minibatch(0) == {} == source.next_minibatch(1)
