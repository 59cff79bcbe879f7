import gc
import itertools
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import cntkjax as C
from cntkjax.axis import Axis
from cntkjax.io import (
    FULL_DATA_SWEEP,
    MinibatchData,
    MinibatchSource,
    MinibatchSourceFromData,
    StreamInformation,
    UserDeserializer,
    UserMinibatchSource,
)
from cntkjax.layers.typing import Sequence, tensor

EYE = np.eye(4, dtype=np.float32)


class Chunks(UserDeserializer):
    def __init__(self, chunk, chunks=3):
        self.chunk, self.chunks, self.asked = chunk, chunks, []

    def stream_infos(self):
        return [
            StreamInformation("x", 0, "dense", np.float32, (2,)),
            StreamInformation("s", 1, "sparse", np.float32, (4,)),
        ]

    def num_chunks(self):
        return self.chunks

    def get_chunk(self, chunk_id):
        self.asked.append(chunk_id)
        return self.chunk(chunk_id)


def sequences(c):
    return {
        "x": [np.full((k + 1, 2), 10 * c + k) for k in range(3)],
        "s": [sp.csr_matrix(EYE[: k + 1]) for k in range(3)],
    }


def samples(c):
    return {"x": np.arange(6).reshape(3, 2) + 10 * c, "s": sp.csr_matrix(EYE[:3])}


def test_lists_are_sequences(read_all):
    (minibatch,) = read_all(MinibatchSource([Chunks(sequences, 1)], randomize=False, max_sweeps=1))
    assert minibatch["x"] == [[[k, k]] * (k + 1) for k in range(3)]
    assert minibatch["s"] == [[{i: 1} for i in range(k + 1)] for k in range(3)]


def test_rows_of_arrays_and_matrices_are_samples(read_all):
    minibatches = read_all(MinibatchSource(Chunks(samples), randomize=False, max_sweeps=1), 4)
    assert [len(m["x"]) for m in minibatches] == [4, 4, 1]
    assert minibatches[1]["x"] == [[[12, 13]], [[14, 15]], [[20, 21]], [[22, 23]]]
    assert minibatches[1]["s"] == [[{1: 1}], [{2: 1}], [{0: 1}], [{1: 1}]]


def test_data_are_converted_to_the_format_of_the_stream(read_all):
    def mixed(c):
        return {"x": [np.array([1, 2]), sp.csr_matrix([[3.0, 4.0], [5, 6]])], "s": [EYE[:1], [EYE[1], EYE[2]]]}

    (minibatch,) = read_all(MinibatchSource(Chunks(mixed, 1), randomize=False, max_sweeps=1))
    assert minibatch == {"x": [[[1, 2]], [[3, 4], [5, 6]]], "s": [[{0: 1}], [{1: 1}, {2: 1}]]}


def test_shuffled_chunks_occur_once_in_a_sweep(read_all):
    user = Chunks(samples)
    minibatches = read_all(MinibatchSource(user, max_sweeps=2), 4)
    assert sorted(step[0] for m in minibatches for (step,) in m["x"]) == sorted([0, 2, 4, 10, 12, 14, 20, 22, 24] * 2)
    assert sorted(user.asked) == [0, 1, 2]


@pytest.mark.parametrize("chunk, message", [
    (lambda c: {"x": [EYE[:1, :2]], "s": []}, r"get_chunk\(0\), stream 's': is an empty list"),
    (lambda c: {"x": [EYE[:1, :2]]}, r"Chunks.get_chunk\(0\): has no data of the streams \['s'\]"),
    (lambda c: {**samples(c), "x": EYE[:2, :2]}, r"as many sequences for each stream, but returns \{'x': 2, 's': 3\}"),
    (lambda c: {**samples(c), "x": EYE[:3]}, r"stream 'x': samples have shape \(4,\), but the stream has \(2,\)"),
    (lambda c: {**samples(c), "s": sp.csr_matrix(EYE[:3, :3])}, r"samples have shape \(3,\), but the stream"),
])
def test_an_invalid_chunk_is_an_error(chunk, message):
    with pytest.raises(RuntimeError, match=message):
        MinibatchSource(Chunks(chunk)).next_minibatch(1)


def test_a_chunk_has_to_stay_the_same():
    count = itertools.chain([1, 1], itertools.repeat(2))
    user = Chunks(lambda c: {"x": [np.ones((next(count), 2))], "s": [EYE[:1]]}, 2)
    source = MinibatchSource(user, randomize=False)
    source.next_minibatch(1)
    source.next_minibatch(1)
    with pytest.raises(RuntimeError, match=r"get_chunk\(0\): returns sequences of other lengths than before"):
        source.next_minibatch(1)


def test_chunks_are_requested_one_at_a_time_and_freed_at_the_end(read_all):
    at_work, given_out = [], []

    def chunk(c):
        assert not at_work
        at_work.append(c)
        time.sleep(0.001)
        x = np.ones((3, 2), np.float32)
        given_out.append(weakref.ref(x))
        at_work.clear()
        return {**samples(c), "x": x}

    source = MinibatchSource(Chunks(chunk, 5), max_sweeps=1, randomization_window_in_chunks=2)
    source.restore_from_checkpoint({"minibatchSourcePosition": 4})
    assert sum(len(m["x"]) for m in read_all(source, 2)) == 11
    gc.collect()
    assert [x() for x in given_out] == [None] * len(given_out)


@pytest.mark.parametrize("error", [KeyError("my own"), StopIteration("my own"), ValueError("my own")])
def test_errors_of_the_user_are_the_cause_of_a_runtime_error(error):
    def fails(c):
        raise error

    name = type(error).__name__
    with pytest.raises(RuntimeError, match=rf"Chunks.get_chunk\(0\) raised {name}: .?my own") as raised:
        MinibatchSource(Chunks(fails)).next_minibatch(1)
    causes = raised.value.__cause__, raised.value.__cause__ and raised.value.__cause__.__cause__
    assert error in causes


@pytest.mark.parametrize("base, method, arguments", [
    (UserDeserializer, "num_chunks", ()), (UserDeserializer, "get_chunk", (0,)), (UserDeserializer, "stream_infos", ()),
    (UserMinibatchSource, "stream_infos", ()), (UserMinibatchSource, "next_minibatch", (1, 1, 0)),
])
def test_methods_that_have_to_be_defined(base, method, arguments):
    with pytest.raises(NotImplementedError, match=f"{base.__name__} has to define {method}"):
        getattr(base(), method)(*arguments)


class Countdown(UserMinibatchSource):
    def stream_infos(self):
        return [StreamInformation("x", 0, "dense", np.float32, (1,))]


def test_user_minibatch_source():
    source = Countdown()
    assert source["x"] == source.streams.x == source.stream_info("x") == source.stream_infos()[0]
    assert (source.is_infinite(), source.get_checkpoint_state()) == (False, {})
    with pytest.raises(RuntimeError, match="No stream found matching given name 'q'"):
        source.stream_info("q")


def test_minibatch_data_from_a_value():
    from cntkjax.core import Value

    data = MinibatchData(Value([np.ones((2, 3)), np.ones((1, 3))]), num_sequences=2, num_samples=3, sweep_end=True)
    assert (data.num_sequences, data.num_samples, data.end_of_sweep, data.shape) == (2, 3, True, (2, 2, 3))
    assert data.ragged.lengths.tolist() == [2, 1]
    assert data.data.asarray().shape == (2, 2, 3)


class TestFromData:
    def test_no_samples_are_an_empty_minibatch_and_leave_the_position(self):
        source = MinibatchSourceFromData({"x": np.arange(6, dtype=np.float32).reshape(3, 2)}, max_samples=3)

        def read(size):
            minibatch = source.next_minibatch(size)
            return [(v.num_samples, v.end_of_sweep, v.asarray().shape) for v in minibatch.values()]

        empty = [(0, False, (0, 2))]
        assert [read(size) for size in (0, 2, 0)] == [empty, [(2, False, (2, 2))], empty]
        assert source.get_checkpoint_state() == {"cursor": 2, "total_num_samples": 2}
        assert [read(size) for size in (1, 0, 1)] == [[(1, True, (1, 2))], [], []]

    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    SEQUENCE = SimpleNamespace(
        shape=(2,), dynamic_axes=(Axis.default_batch_axis(), Axis.default_dynamic_axis()), is_sparse=False
    )

    def test_sweeps_repeat(self):
        source = MinibatchSourceFromData({"x": self.X, "s": sp.csr_matrix(self.X)})
        assert [repr(i) for i in source.stream_infos()] == ["x([2])", "s([2])"]
        assert [d.num_samples for _ in range(4) for d in source.next_minibatch(4).values()] == [4, 4, 2, 2, 4, 4, 2, 2]
        assert source.get_checkpoint_state() == {"cursor": 0, "total_num_samples": 12}

    def test_a_sweep_ends_with_the_data_or_with_max_samples(self):
        source = MinibatchSourceFromData({"x": self.X}, max_samples=10)
        actual = [source.next_minibatch(4) for _ in range(4)]
        assert [[(d.num_samples, d.end_of_sweep, d.shape) for d in m.values()] for m in actual] == [
            [(4, False, (4, 2))], [(2, True, (2, 2))], [(4, True, (4, 2))], [],
        ]

    def test_a_checkpoint_resumes_identically(self):
        source, other = (MinibatchSourceFromData({"x": self.X}, FULL_DATA_SWEEP) for _ in range(2))
        source.next_minibatch(2)
        other.restore_from_checkpoint(source.get_checkpoint_state())
        rest = [[d.ragged.data.tolist() for d in s.next_minibatch(3).values()] for s in (source, other)]
        assert rest == [[self.X[2:5].tolist()]] * 2

    def test_workers_share_a_minibatch(self):
        actual = []
        for rank in range(2):
            source = MinibatchSourceFromData({"x": self.X}, FULL_DATA_SWEEP)
            while minibatch := source.next_minibatch(4, number_of_workers=2, worker_rank=rank):
                actual += minibatch[source.streams.x].ragged.data.tolist()
        assert sorted(actual) == self.X.tolist()

    def test_sequences_need_a_type(self):
        lists = [self.X[:1], self.X[:3], self.X[:2]]
        source = MinibatchSourceFromData({"x": (lists, self.SEQUENCE), "y": np.ones((3, 1))})
        minibatch = source.next_minibatch(4)
        assert {i.name: (d.num_sequences, d.num_samples, d.shape) for i, d in minibatch.items()} == {
            "x": (2, 4, (2, 3, 2)), "y": (2, 2, (2, 1)),
        }
        with pytest.raises(TypeError, match="stream 'x': a list needs a type"):
            MinibatchSourceFromData({"x": lists})

    @pytest.mark.parametrize(("data", "sample_shape", "shape"), [
        ([X[:1], X[:3]], (2,), (2, 3, 2)),
        ([sp.csr_matrix(X[:1]), sp.csr_matrix(X[:3])], (2,), (2, 3, 2)),
        ([np.ones((1, 2, 2)), np.ones((3, 2, 2))], (2, 2), (2, 3, 2, 2)),
        ([np.ones(1), np.ones(3)], (), (2, 3)),
        (X[:2], (), (2, 2)),
    ])
    def test_a_type_without_a_shape_takes_it_from_the_data(self, data, sample_shape, shape):
        source = MinibatchSourceFromData({"x": (data, Sequence[tensor])})
        assert source.streams.x.sample_shape == sample_shape
        minibatch = source.next_minibatch(4)[source.streams.x]
        assert (minibatch.shape, minibatch.num_sequences, minibatch.num_samples) == (shape, 2, 4)
        array = MinibatchSourceFromData({"x": (self.X, tensor)})
        assert array.next_minibatch(4)[array.streams.x].shape == (4, 2)

    def test_invalid_data_is_an_error(self):
        with pytest.raises(ValueError, match="at least one stream must be specified"):
            MinibatchSourceFromData({})
        with pytest.raises(TypeError, match=r"must have the same first dimension, but they have \{'x': 6, 'y': 3\}"):
            MinibatchSourceFromData({"x": self.X, "y": self.X[:3]})
        with pytest.raises(ValueError, match="there are no samples"):
            MinibatchSourceFromData({"x": self.X[:0]})


@pytest.mark.parametrize("where", ["object", "class"])
def test_subclasses_may_use_any_attribute_name(where):
    """CNTK passes a source the device, and uses nothing of it but its methods."""
    defined = {"stream_infos", "next_minibatch", "is_infinite", "num_chunks", "get_chunk", "inside"}
    inside = {name for cls in (UserMinibatchSource, UserDeserializer) for name in dir(cls) if not name.startswith("__")}
    names = (inside | {"streams"}) - defined

    class Keeping:
        inside = MinibatchSourceFromData({"x": np.ones((4, 2), np.float32)}, FULL_DATA_SWEEP)

        def __init__(self):
            for name in names if where == "object" else ():
                setattr(self, name, "mine")

    for name in names if where == "class" else ():
        setattr(Keeping, name, "mine")

    class Chunks(Keeping, UserDeserializer):
        def stream_infos(self):
            return self.inside.stream_infos()

        def num_chunks(self):
            return 2

        def get_chunk(self, chunk_id):
            return {"x": np.ones((2, 2), np.float32)}

    class Source(Keeping, UserMinibatchSource):
        def stream_infos(self):
            return self.inside.stream_infos()

        def next_minibatch(self, num_samples, number_of_workers, worker_rank, device):
            assert device == C.use_default_device()
            return self.inside.next_minibatch(num_samples)

    x, w = C.input_variable(2), C.parameter(2)
    loss = C.reduce_sum(x * w)
    for source in Source(), MinibatchSource([Chunks()], max_sweeps=1):
        trainer = C.Trainer(loss, (loss, loss), C.sgd([w], 0.1))
        C.training_session(trainer, source, 2, {x: Keeping.inside.stream_infos()[0]}).train()
        assert trainer.total_number_of_samples_seen == 4
    wrong = C.training_session(trainer, Source(), 2, {x: StreamInformation("y", 0, "dense", np.float32, (2,))})
    Keeping.inside.restore_from_checkpoint({"cursor": 0, "total_num_samples": 0})
    with pytest.raises(RuntimeError, match="has no stream 'y'"):
        wrong.train()


def test_get_next_minibatch_calls_nothing_but_next_minibatch():
    class Source(UserMinibatchSource):
        _part = _sizes = _share = stream_info = "mine"

        def next_minibatch(self, *arguments):
            return arguments

    device = C.cpu()
    assert Source().get_next_minibatch(7) == (7, 1, 0, None)
    assert Source().get_next_minibatch(0, 7, 3, 2, device) == (7, 3, 2, device)


@pytest.mark.parametrize(("samples", "sequences"), [(1, 1), (4, 1), (4, 4)])
def test_minibatch_data_of_an_array_are_fed_like_the_array(samples, sequences):
    """One sample [*shape] is a sample, as a `Value` alone is; CNTK counts as it is told."""
    data = MinibatchData(C.Value(batch=np.array([1, 2, 3], "f")), sequences, samples, True)
    assert (data.shape, data.asarray().shape) == ((3,), (3,))
    assert (len(data), data.num_samples, data.end_of_sweep) == (sequences, samples, True)
    x, s = C.input_variable(3), C.sequence.input_variable(3)
    np.testing.assert_array_equal(C.alias(x).eval({x: data}), [[1, 2, 3]])
    np.testing.assert_array_equal(C.alias(s).eval({s: data}), [[[1, 2, 3]]])


def test_minibatch_data_of_an_array_of_steps_are_one_sequence():
    s = C.sequence.input_variable(3)
    data = MinibatchData(C.Value(batch=np.ones((4, 3), "f")), 1, 4, False)
    assert [sequence.shape for sequence in C.alias(s).eval({s: data})] == [(4, 3)]


def test_a_source_may_give_one_sample_without_a_batch_axis():
    """Weights of CNTK 2.7 after three minibatches of one sample."""

    class OneSample(C.io.UserMinibatchSource):
        x = C.io.StreamInformation("x", 0, "dense", np.float32, (3,))
        y = C.io.StreamInformation("y", 1, "dense", np.float32, (1,))

        def stream_infos(self):
            return [self.x, self.y]

        def next_minibatch(self, *options):
            return {
                self.x: MinibatchData(C.Value(batch=np.array([1, 2, 3], "f")), 1, 1, True),
                self.y: MinibatchData(C.Value(batch=np.array([1], "f")), 1, 1, True),
            }

    x, y, w = C.input_variable(3), C.input_variable(1), C.parameter(3)
    model = C.reduce_sum(x * w)
    trainer = C.Trainer(model, (C.squared_error(model, y), None), [C.sgd([w], C.learning_parameter_schedule(0.1))])
    streams = {x: OneSample.x, y: OneSample.y}
    C.training_session(trainer, OneSample(), mb_size=1, model_inputs_to_streams=streams, max_samples=3).train()
    assert trainer.total_number_of_samples_seen == 3
    np.testing.assert_allclose(w.value, [0.488, 0.976, 1.464], rtol=1e-6)
