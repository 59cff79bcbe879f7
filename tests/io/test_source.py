"""Properties of minibatches: sizes, sweeps, shuffling, workers, positions. Literals were recorded from CNTK 2.7."""

import pytest

import cntkjax as C
from cntkjax.io import FULL_DATA_SWEEP, CTFDeserializer, MinibatchSource, StreamDef, StreamDefs


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

    @pytest.mark.parametrize("randomize", [False, True])  # chunks as a whole, and single sequences of them
    def test_a_script_may_change_its_working_directory(self, tmp_path, monkeypatch, read_all, randomize):
        (tmp_path / "x.ctf").write_text("|x 1\n" * 10)
        monkeypatch.chdir(tmp_path)
        source = MinibatchSource(
            CTFDeserializer("x.ctf", StreamDefs(x=StreamDef("x", 1))), randomize=randomize, max_sweeps=3
        )
        monkeypatch.chdir("/")
        assert sum(len(minibatch["x"]) for minibatch in read_all(source, 4)) == 30

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
        for position in (-1, 1.5, None, "a"):
            with pytest.raises(ValueError, match=f"has to be a whole number of at least 0, not {position!r}"):
                MinibatchSource(ctf("|x 1\n", x=1)).restore_from_checkpoint({"minibatchSourcePosition": position})


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


def test_streams_may_have_the_names_of_methods_of_a_dict(ctf):
    source = MinibatchSource(ctf("|keys 1 |values 2\n", keys=1, values=1), max_sweeps=1)
    minibatch = source.next_minibatch(1)
    assert [minibatch[s].asarray().item() for s in (source.streams.keys, source.streams.values)] == [1, 2]


@pytest.mark.parametrize("option", [
    "max_samples", "max_sweeps", "randomization_window_in_chunks", "randomization_window_in_samples",
    "truncation_length", "randomization_seed",
])
def test_limits_are_not_negative(ctf, option):
    with pytest.raises(ValueError, match=f"{option} = -1 is not possible"):
        MinibatchSource(ctf("|x 1\n", x=1), **{option: -1})
