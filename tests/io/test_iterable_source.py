"""Anything that Python iterates over is a minibatch source."""

import gc
import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.io import FULL_DATA_SWEEP, MinibatchSourceFromData, from_iterable
from cntkjax.layers.typing import Sequence, SparseTensor, Tensor


def numbers(count=7):
    return [{"x": np.array([i, -i], np.float32), "y": i % 3} for i in range(count)]


def generated():
    yield from numbers()


class Dataset:
    """A data set as those of PyTorch: begins anywhere."""

    def __init__(self, items):
        self.items, self.asked = items, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.items[index]


class Skipping:
    """A stream of data as those of Hugging Face or TensorFlow: iterated over, and can skip."""

    def __init__(self, first=0):
        self.first = first

    def __iter__(self):
        return iter(numbers()[self.first :])

    def skip(self, count):
        return Skipping(self.first + count)


STREAMS = {"x": 2, "y": SparseTensor[3]}
KINDS = {
    "list": numbers, "function": lambda: generated, "data set": lambda: Dataset(numbers()), "skipping": Skipping,
    "generator": generated, "iterable": lambda: dict(enumerate(numbers())).values(),
    "batches": lambda: [{"x": np.stack([i["x"] for i in part]), "y": [i["y"] for i in part]}
                        for part in (numbers()[:4], numbers()[4:])],
}


def source_of(kind, **options):
    return from_iterable(KINDS[kind](), STREAMS, batched=kind == "batches" or None, **options)


def first_column(minibatch, source):
    return minibatch[source.streams.x].asarray()[:, 0].tolist() if minibatch else None


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_minibatches_and_the_end_of_sweeps(kind):
    source = source_of(kind, max_sweeps=2)
    assert not source.is_infinite()
    read = []
    while minibatch := source.next_minibatch(3):
        data = minibatch[source.streams.x]
        read.append((first_column(minibatch, source), data.end_of_sweep))
        assert data.num_samples == minibatch[source.streams.y].num_samples == len(read[-1][0])
        labels = minibatch[source.streams.y].data
        assert labels.asarray().toarray().argmax(1).tolist() == [x % 3 for x in read[-1][0]]
    sweep = [([0, 1, 2], False), ([3, 4, 5], False), ([6], True)]
    assert read == (sweep if kind == "generator" else sweep * 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1, 3, 4])
def test_a_checkpoint_is_the_position_of_what_was_read_not_of_what_was_read_ahead(kind, after):
    source = source_of(kind, max_sweeps=3)
    for _ in range(after):
        source.next_minibatch(3)
    state, expected = source.get_checkpoint_state(), first_column(source.next_minibatch(3), source)
    for reader in [source, source_of(kind, max_sweeps=3)][kind == "generator" :]:
        reader.restore_from_checkpoint(state)
        assert first_column(reader.next_minibatch(3), reader) == expected


def test_a_generator_cannot_go_back():
    source = source_of("generator")
    state = source.get_checkpoint_state()
    source.next_minibatch(3)
    source.restore_from_checkpoint(state)
    with pytest.raises(RuntimeError, match="a generator cannot go back to item 0, as . have been read; pass"):
        source.next_minibatch(3)


def test_a_data_set_begins_at_the_position_of_a_checkpoint():
    data = Dataset(numbers(1000))
    source = from_iterable(data, STREAMS)
    source.restore_from_checkpoint({"sweep": 0, "item": 900, "samples": 900})
    assert first_column(source.next_minibatch(2), source) == [900, 901]
    assert min(data.asked) == 900


def test_a_generator_that_ends_before_the_position_is_an_error():
    source = from_iterable(generated(), STREAMS)
    with pytest.raises(RuntimeError, match="the data end before the position of the checkpoint"):
        source.restore_from_checkpoint({"sweep": 0, "item": 8, "samples": 8})


def test_workers_share_a_minibatch():
    for workers in (1, 2, 3):
        sources = [from_iterable(numbers(), STREAMS, max_sweeps=2) for _ in range(workers)]
        in_memory = MinibatchSourceFromData({"x": np.stack([i["x"] for i in numbers()])}, max_samples=14)
        for _ in range(6):
            parts = [source.next_minibatch(3, workers, rank) for rank, source in enumerate(sources)]
            whole = first_column(in_memory.next_minibatch(3), in_memory)
            assert sorted(x for p, s in zip(parts, sources, strict=True) for x in first_column(p, s)) == whole
            assert len({part[sources[0].streams.x].end_of_sweep for part in parts}) == 1


def test_sequences_are_counted_by_their_longest_stream_and_stay_whole():
    items = [{"w": list(range(n)), "f": np.full((1, 2), n, np.float32), "s": csr_matrix(np.eye(n, 4))} for n in
             (2, 3, 1, 4)]
    kinds = {"w": Sequence[Tensor[5]], "f": Sequence[Tensor[2]], "s": Sequence[SparseTensor[4]]}
    source = from_iterable(items, kinds, max_sweeps=1)
    first, second, third = (source.next_minibatch(4) for _ in range(3))
    assert [m[source.streams.w].num_samples for m in (first, second, third)] == [2, 4, 4]
    words = second[source.streams.w].as_sequences()
    assert [w.argmax(1).tolist() for w in words] == [[0, 1, 2], [0]]
    assert [s.toarray().tolist() for s in second[source.streams.s].as_sequences()] == [
        np.eye(3, 4).tolist(), np.eye(1, 4).tolist()
    ]
    assert second[source.streams.f].shape == (2, 1, 2)
    assert third[source.streams.w].end_of_sweep and not source.next_minibatch(4)


def test_streams_without_declaration_have_the_shapes_of_the_first_item():
    source = from_iterable(numbers(), max_samples=FULL_DATA_SWEEP)
    assert {info.name: info.sample_shape for info in source.stream_infos()} == {"x": (2,), "y": (1,)}
    assert source.next_minibatch(100)[source.streams.y].asarray().ravel().tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert not source.next_minibatch(1)


def test_tuples_are_in_the_order_of_the_streams():
    source = from_iterable(((item["x"], item["y"]) for item in numbers()), STREAMS)
    assert source.next_minibatch(4)[source.streams.y].num_samples == 4
    with pytest.raises(TypeError, match="name the streams in their order"):
        from_iterable([(1, 2)])
    with pytest.raises(RuntimeError, match=r"an item has 3 values, but there are 2 streams \(x, y\)"):
        from_iterable([(1, 2, 3)], STREAMS).next_minibatch(1)


def test_errors_of_the_data_come_with_the_minibatch_that_needs_the_item():
    def failing():
        yield from numbers(5)
        raise KeyError("the data are gone")

    source = from_iterable(failing(), STREAMS)
    assert [first_column(source.next_minibatch(4), source) for _ in range(2)] == [[0, 1, 2, 3], [4]]
    for _ in range(2):
        with pytest.raises(KeyError, match="the data are gone"):
            source.next_minibatch(4)


@pytest.mark.parametrize("items, streams, message", [
    ([], STREAMS, "a sweep through the data has no items"),
    ([{"x": [1, 2]}], STREAMS, "stream 'y': an item has no such value; its values are x"),
    ([{"x": [1, 2, 3], "y": 0}], STREAMS, r"stream 'x': samples have shape .*3.*but the stream has \(2,\)"),
    ([{"x": [1, 2], "y": 3}], STREAMS, "stream 'y': class 3 is not one of 0 to 2"),
])
def test_data_that_do_not_fit_are_errors(items, streams, message):
    with pytest.raises(RuntimeError, match=message):
        from_iterable(items, streams).next_minibatch(2)


@pytest.mark.parametrize("data, message", [
    (5, "int cannot be iterated over"), ({"x": [1]}, "a dict holds columns, not items; write MinibatchSourceFromData"),
])
def test_data_that_are_no_iterable_are_refused(data, message):
    with pytest.raises(TypeError, match=message):
        from_iterable(data, STREAMS)
    with pytest.raises(ValueError, match="0 samples for worker 0 of 1"):
        from_iterable([1], {"x": 1}).next_minibatch(0)


def test_items_are_read_ahead_but_not_without_limit_and_the_thread_ends_with_the_source():
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield {"x": [len(read), 0]}

    source = from_iterable(endless, {"x": 2})
    source.next_minibatch(10)
    deadline = time.monotonic() + 20
    while len(read) < 20:
        assert time.monotonic() < deadline
    assert len(read) <= 10 + 1 + 20 + 2
    del source
    gc.collect()
    while any(thread.name == "cntkjax-items" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_trainer_and_a_session_train_on_an_iterable():
    x, y = C.input_variable(2), C.input_variable(3)
    z = C.layers.Dense(3, init=0.1)(x)
    loss = C.cross_entropy_with_softmax(z, y)
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, 0.1)])
    source = from_iterable(generated, {"x": x, "y": y})
    session = C.training_session(
        trainer, source, mb_size=3, model_inputs_to_streams={x: source.streams.x, y: source.streams.y}, max_samples=14
    )
    session.train()
    assert trainer.total_number_of_samples_seen == 14
    assert source.get_checkpoint_state() == {"sweep": 2, "item": 0, "samples": 14}
