"""Minibatch sources that users write, and the source of data in memory."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import cntkjax as C
from cntkjax.axis import Axis
from cntkjax.io import (
    FULL_DATA_SWEEP,
    MinibatchSource,
    MinibatchSourceFromData,
    StreamInformation,
    UserDeserializer,
    UserMinibatchSource,
)
from cntkjax.layers.typing import Sequence, tensor


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


@pytest.mark.parametrize("rows", [[[None, 1.0], [2.0, 3.0]], [["1", "2"]], [[1 + 2j, 0]]], ids=str)
def test_rows_that_numpy_converts_to_numbers_though_they_are_none_are_errors(rows):
    data = np.array(rows, object if rows[0][0] is None else None)
    with pytest.raises(ValueError, match="stream 'x': is no array of numbers, but of type"):
        C.io.MinibatchSourceFromData({"x": data})
    with pytest.raises(RuntimeError, match="no array of numbers"):
        C.io.MinibatchSourceFromData({"x": (list(data), C.layers.Tensor[2])})
